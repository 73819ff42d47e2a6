// Package virtiofsd is a VM with a directory of the host that Debian's virtiofsd serves, as a baseline for shared
// directories. It has the guest kernel, one processor and the memory of a pod. The memory is shared with virtiofsd.
package virtiofsd

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/internal/cpio"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
)

// The programs of Debian's packages qemu-system-common and qemu-system-x86.
const (
	server = "/usr/lib/qemu/virtiofsd"
	qemu   = "qemu-system-x86_64"
)

// patience bounds the start and each work.
const patience = 2 * time.Minute

// Options configure the VM.
type Options struct {
	Dir    string // short, for sockets and the initrd
	Shared string // the directory that it shares
	Guest  string // the guest bundle
	Module string // virtiofs.ko of its kernel
	CPU    string // QEMU's CPU model
	// Tools are files of the VM's root. Program is the name of process 1 in it, which gets the argument "serve".
	Tools   []ociimage.Entry
	Program string
}

// VM is a running VM.
type VM struct {
	served, vm *exec.Cmd
	conn       net.Conn
	lines      *bufio.Reader
}

// Open boots the VM. It returns when the shared directory is mounted.
func Open(ctx context.Context, o Options) (v *VM, err error) {
	if _, err := os.Stat(server); err != nil {
		return nil, err
	}
	bundle, err := guest.Load(o.Guest)
	if err != nil {
		return nil, err
	}
	initrd := filepath.Join(o.Dir, "initrd")
	if err := pack(initrd, bundle.InitrdPath(), o); err != nil {
		return nil, fmt.Errorf("build an initrd: %w", err)
	}
	v = &VM{}
	defer func() {
		if err != nil {
			said, _ := os.ReadFile(filepath.Join(o.Dir, "console")) // there may be none
			err = fmt.Errorf("boot a VM with virtiofsd: %w: %q", err, said[max(0, len(said)-400):])
			err = errors.Join(err, v.Close(ctx))
		}
	}()
	files, control := filepath.Join(o.Dir, "fs"), filepath.Join(o.Dir, "hvc")
	listener, err := net.Listen("unix", control)
	if err != nil {
		return v, err
	}
	defer listener.Close()
	if v.served, err = start(server, "--socket-path="+files, "-o", "source="+o.Shared); err != nil {
		return v, err
	}
	if err := appear(ctx, files); err != nil {
		return v, err
	}
	v.vm, err = start(qemu,
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35,memory-backend=mem,smm=off,vmport=off,hpet=off,sata=off,smbus=off,usb=off",
		"-accel", "tcg,thread=multi,tb-size=64", "-cpu", o.CPU, "-smp", "1", "-m", "512M",
		"-object", "memory-backend-memfd,id=mem,size=512M,share=on",
		"-chardev", "socket,id=fs,path="+files, "-device", "vhost-user-fs-pci,chardev=fs,tag=bench",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=hvc,path="+control, "-device", "virtconsole,chardev=hvc",
		"-kernel", bundle.KernelPath(), "-initrd", initrd, "-append", bundle.Cmdline+" console=ttyS0 rdinit=/"+o.Program+" -- serve",
		"-serial", "file:"+filepath.Join(o.Dir, "console"),
	)
	if err != nil {
		return v, err
	}
	_ = listener.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	if v.conn, err = listener.Accept(); err != nil {
		return v, err
	}
	v.lines = bufio.NewReader(v.conn)
	line, err := v.next(ctx)
	if err == nil && line != "ready" {
		err = fmt.Errorf("unexpected answer %q", line)
	}
	return v, err
}

// Do sends a line to the program and returns its answer.
func (v *VM) Do(ctx context.Context, line string) (string, error) {
	if _, err := fmt.Fprintln(v.conn, line); err != nil {
		return "", fmt.Errorf("send to the VM: %w", err)
	}
	said, err := v.next(ctx)
	if err == nil && strings.HasPrefix(said, "failed") {
		err = errors.New(said)
	}
	return said, err
}

func (v *VM) next(ctx context.Context) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = v.conn.SetDeadline(time.Now()) })
	defer stop()
	if err := v.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	line, err := v.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("read from the VM: %w", err)
	}
	return strings.TrimSpace(line), nil
}

// Close ends the VM and the server.
func (v *VM) Close(context.Context) error {
	if v.conn != nil {
		v.conn.Close()
	}
	for _, cmd := range []*exec.Cmd{v.vm, v.served} {
		if cmd != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		}
	}
	return nil
}

// start starts a program out of reach of the terminal's Ctrl-C.
func start(name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(name, args...) //nolint:noctx // until Close
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, cmd.Start()
}

// appear waits for a socket.
func appear(ctx context.Context, path string) error {
	for ctx, cancel := context.WithTimeout(ctx, patience); ; {
		if _, err := os.Lstat(path); err == nil {
			cancel()
			return nil
		}
		select {
		case <-ctx.Done():
			cancel()
			return fmt.Errorf("%s: %w", path, ctx.Err())
		case <-time.After(10 * time.Millisecond): // virtiofsd does not report it
		}
	}
}

// pack writes the guest's initrd, followed by the tools and the module. The kernel unpacks them over it.
func pack(path, base string, o Options) (err error) {
	archive, err := os.ReadFile(base)
	if err != nil {
		return err
	}
	module, err := os.ReadFile(o.Module)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(archive); err != nil {
		return err
	}
	entries := []cpio.Entry{{Name: "lib/modules/virtiofs.ko", Mode: cpio.File | 0o644, Data: module}}
	for _, e := range o.Tools {
		entry := cpio.Entry{Name: strings.TrimSuffix(e.Name, "/"), Mode: cpio.File | uint32(e.Mode), Data: e.Body}
		switch e.Typeflag {
		case tar.TypeDir:
			entry.Mode = cpio.Dir | uint32(e.Mode)
		case tar.TypeSymlink:
			entry.Mode, entry.Data = cpio.Link|uint32(e.Mode), []byte(e.Linkname)
		}
		entries = append(entries, entry)
	}
	return cpio.Write(f, entries)
}
