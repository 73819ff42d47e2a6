package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
)

func TestMain(m *testing.M) { os.Exit(testnet.Alone(m)) }

// address is where the host's sshd answers: the loopback of the test's own network namespace.
const address = "127.0.0.1:2222"

// host is a running host.
type host struct {
	console string // file with the output of its serial port
	key     ssh.Signer
	clients map[string]*ssh.Client // login sessions by user
	cgroup1 bool                   // systemd uses version 1 of cgroups
}

// boot starts a host of a suite, with more parameters for its kernel, and installs the package of this tree there. The host
// ends with the test. The test changes nothing on the disk image.
func boot(t *testing.T, suite, parameters string) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make the host's disk")
	}
	image := image(t, suite)
	h := &host{console: filepath.Join(t.TempDir(), "console"), clients: map[string]*ssh.Client{},
		cgroup1: strings.Contains(parameters, "unified_cgroup_hierarchy=0")}
	key, err := os.ReadFile(filepath.Join(image, "key"))
	if err != nil {
		t.Fatal(err)
	}
	if h.key, err = ssh.ParsePrivateKey(key); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(image, name) }
	cmd := exec.Command("qemu-system-x86_64", "-nodefaults", "-display", "none", "-machine", "q35",
		"-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "EPYC,+svm,+npt", "-smp", "2", "-m", "5G",
		"-kernel", in("vmlinuz"), "-initrd", in("initrd"),
		"-append", "root=/dev/vda rw console=ttyS0 quiet panic=10 mitigations=off tsc=reliable "+parameters,
		"-drive", "if=virtio,format=raw,snapshot=on,cache=unsafe,file="+in("disk.img"),
		"-drive", "if=virtio,format=raw,readonly=on,file="+packages(t),
		"-device", "virtio-rng-pci", "-serial", "file:"+h.console,
		// Its packets do not leave the machine that runs the test.
		"-netdev", "user,id=n,restrict=on,hostfwd=tcp:"+address+"-:22", "-device", "virtio-net-pci,netdev=n")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // QEMU keeps the disk's changes there
	testproc.Start(t, cmd)
	t.Cleanup(h.leave)
	h.await(testdeadline.Context(t, 3*time.Minute), t)
	if suite == "bookworm" {
		// Debian 12's installer writes a file. Its AppArmor profile of pasta forbids to read the target of a link.
		h.do(t, "root", "cp --remove-destination $(readlink -f /etc/resolv.conf) /etc/resolv.conf")
	}
	h.holdKVM(t)
	h.do(t, "root", "mount -o ro LABEL=packages /mnt && apt-get -qq install /mnt/bulkhead.deb && install /mnt/crictl /usr/local/bin")
	return h
}

// holdKVM keeps a VM in the host until it restarts. The host's kernel patches its scheduler when its first VM is created and
// when its last one ends. QEMU's emulation sometimes runs the old code there on another processor, and the kernel panics.
// So the host has one processor while it creates that VM. A host that has just booted may still load KVM's module.
func (h *host) holdKVM(t *testing.T) {
	t.Helper()
	h.do(t, "root", "udevadm settle && ln -sf $(command -v qemu-system-x86_64) /run/held && "+
		"echo 0 >/sys/devices/system/cpu/cpu1/online && "+
		"/run/held -accel kvm -S -m 16 -nodefaults -display none -daemonize && "+
		"echo 1 >/sys/devices/system/cpu/cpu1/online")
}

// image returns the directory of the suite's disk, kernel and ssh key.
func image(t *testing.T, suite string) string {
	t.Helper()
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(testdeadline.Context(t, time.Minute), filepath.Join(root, "hack", "host-image"), suite)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the disk of %s (make host-images makes it): %v: %s", suite, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// packages makes a disk with the package of this tree, a later version of it, an image, crictl and the programs of some
// tests, and returns its path.
func packages(t *testing.T) string {
	t.Helper()
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	tree, disk := t.TempDir(), filepath.Join(t.TempDir(), "packages")
	script := `cp build/packages/bulkhead_*.deb "$1/bulkhead.deb"
		dpkg-deb -R "$1/bulkhead.deb" "$1/later"
		sed -i 's/^Version: .*/&.later/' "$1/later/DEBIAN/control"
		dpkg-deb -Znone -b "$1/later" "$1/later.deb" >/dev/null
		rm -r "$1/later"
		cp build/busybox.tar "$1/"
		for name in containers.conf daemon.json; do sed 's|/usr/local|/usr|' "deploy/clients/$name" >"$1/$name"; done
		cp "$(hack/build-once crictl)" "$1/crictl"
		export CGO_ENABLED=0
		for name in qemu template; do go test -c -trimpath -ldflags=-w -vet=off -o "$1/$name.test" "./hypervisor/$name"; done
		go build -trimpath -ldflags='-s -w' -o "$1/guestinit" ./internal/test/hypervisortest/guestinit
		mke2fs -q -t ext4 -L packages -d "$1" "$2" 600M`
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script, "sh", tree, disk)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make the disk of packages (make package critools makes them): %v: %s", err, out)
	}
	return disk
}

// await waits until root can log in.
func (h *host) await(ctx context.Context, t *testing.T) {
	t.Helper()
	for {
		_, err := h.login(ctx, "root")
		if err == nil {
			return
		}
		select {
		case <-time.After(time.Second): // a booting host sends no event
		case <-ctx.Done():
			t.Fatalf("the host does not answer: %v: %v; its console ends with: %s", context.Cause(ctx), err, h.said())
		}
	}
}

// said returns the end of the output of the host's serial port. A kernel that panics says so there.
func (h *host) said() []byte {
	said, err := os.ReadFile(h.console)
	if err != nil {
		return []byte(err.Error())
	}
	return said[max(0, len(said)-4096):]
}

// login returns the user's login session. It opens one if there is none.
func (h *host) login(ctx context.Context, user string) (*ssh.Client, error) {
	if c := h.clients[user]; c != nil {
		return c, nil
	}
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	// QEMU accepts the connection before the host's sshd listens.
	_ = conn.SetDeadline(time.Now().Add(testdeadline.For(time.Minute)))
	c, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(h.key)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec // the test made this host
	})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	h.clients[user] = ssh.NewClient(c, channels, requests)
	return h.clients[user], nil
}

// logout ends the user's session.
func (h *host) logout(user string) {
	if c := h.clients[user]; c != nil {
		_ = c.Close()
		delete(h.clients, user)
	}
}

func (h *host) leave() {
	for user := range h.clients {
		h.logout(user)
	}
}

// try runs a script as a user and returns its output, stderr included. Some VMs die in an emulated host, for a
// reason that is not known yet. A script that leaves nothing then runs again.
func (h *host) try(ctx context.Context, user, script string) (string, error) {
	out, err := h.tryOnce(ctx, user, script)
	if strings.Contains(out, "the guest's kernel died") && strings.Contains(script, "--rm") {
		fmt.Fprintf(os.Stderr, "again, because a VM died: %s\n%s\n", script, out)
		return h.tryOnce(ctx, user, script)
	}
	return out, err
}

func (h *host) tryOnce(ctx context.Context, user, script string) (string, error) {
	c, err := h.login(ctx, user)
	if err != nil {
		return "", fmt.Errorf("log in as %s: %w", user, err)
	}
	s, err := c.NewSession()
	if err != nil {
		return "", fmt.Errorf("a session of %s: %w", user, err)
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	out, err := s.CombinedOutput("sh -ec '" + strings.ReplaceAll(script, "'", `'\''`) + "'")
	if late := context.Cause(ctx); late != nil {
		err = errors.Join(late, err)
	}
	return strings.TrimSpace(string(out)), err
}

// deadline returns a context for one command on a host.
func deadline(t *testing.T) context.Context { return testdeadline.Context(t, 3*time.Minute) }

// do runs a script that must succeed and returns its output.
func (h *host) do(t *testing.T, user, script string) string {
	t.Helper()
	began := time.Now()
	out, err := h.try(deadline(t), user, script)
	if err != nil {
		t.Fatalf("%s: %s: %v: %s; the host's console ends with: %s", user, script, err, out, h.said())
	}
	t.Logf("%.1f s: %s: %s", time.Since(began).Seconds(), user, script)
	return out
}
