package engine_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/blocks"
	"github.com/bulkhead-project/bulkhead/engine/kinds"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/oci"
)

// diskFile creates a file of so many bytes with an empty file system.
func diskFile(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(realDir(t), "disk.img")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", "-q", path)
	return path
}

func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// run returns the output of a host program.
func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// blockPods is an engine with pods that have block devices. It checks that nothing is left at the end.
type blockPods struct {
	*testing.T
	*engine.Engine
	o   engine.Options
	ctx context.Context
}

func newBlockPods(t *testing.T, forks bool) *blockPods {
	t.Helper()
	o := enginetest.Real(t, forks)
	p := &blockPods{T: t, o: o, ctx: testdeadline.Context(t, 4*time.Minute), Engine: enginetest.Open(t, o)}
	t.Cleanup(func() {
		for _, pod := range p.Pods() {
			if err := p.RemovePod(context.WithoutCancel(p.ctx), pod.ID); err != nil {
				t.Error(err)
			}
		}
		if err := p.Close(context.WithoutCancel(p.ctx)); err != nil {
			t.Error(err)
		}
		enginetest.NothingLeft(t, o)
	})
	if forks {
		if err := p.Kinds().Warm(p.ctx, kinds.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// pod starts a pod.
func (p *blockPods) pod(name string) *engine.Facts {
	p.Helper()
	id, err := p.StartPod(p.ctx, podRequest(name))
	if err != nil {
		p.Fatal(err)
	}
	f, err := p.Facts(p.ctx, id)
	if err != nil {
		p.Fatal(err)
	}
	return f
}

// create creates and starts a sleeping container with mounts.
func (p *blockPods) create(pod, name string, mounts ...containerv1.Mount) (string, error) {
	p.Helper()
	return p.createAs(pod, name, false, mounts...)
}

// createAs is like create, for a privileged container or another one.
func (p *blockPods) createAs(pod, name string, privileged bool, mounts ...containerv1.Mount) (string, error) {
	p.Helper()
	img, err := p.Images().Resolve(enginetest.Busybox)
	if err != nil {
		p.Fatal(err)
	}
	spec, err := oci.New("", "sleep", "1000")
	if err != nil {
		p.Fatal(err)
	}
	if privileged {
		all := oci.AllCapabilities()
		spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all}
		spec.Linux.Seccomp, spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = nil, nil, nil
		spec.Linux.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}}
	}
	id, err := p.CreateContainer(p.ctx, pod, engine.ContainerRequest{
		Key: name + "/0", Name: name, Spec: spec, Mounts: mounts, Root: containerv1.Image{ID: img.ID}, Stdio: containerv1.Discard{},
	})
	if err == nil {
		err = p.StartContainer(p.ctx, id)
	}
	return id, err
}

func (p *blockPods) must(id string, err error) string {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
	return id
}

// sh returns the output and errors of a shell in a container.
func (p *blockPods) sh(container, script string) string {
	p.Helper()
	out, _, err := output(p.ctx, p.Engine, container,
		[]string{"sh", "-c", "exec 2>&1; " + script + "\ntrue"}, testdeadline.For(20*time.Second))
	if err != nil {
		p.Fatalf("%s: %v", script, err)
	}
	return strings.TrimSpace(string(out))
}

func (p *blockPods) remove(containers ...string) {
	p.Helper()
	for _, id := range containers {
		if err := p.RemoveContainer(p.ctx, id); err != nil {
			p.Fatal(err)
		}
	}
}

// says fails if the texts differ.
func (p *blockPods) says(got, want string) {
	p.Helper()
	if got != want {
		p.Errorf("got %q, want %q", got, want)
	}
}

func ext4(at, path string, options ...string) containerv1.Mount {
	return containerv1.Mount{Destination: at, Source: containerv1.Block{Name: path, FS: containerv1.FSExt4}, Options: options}
}

// clean fails unless the file system was unmounted.
func (p *blockPods) clean(path string) {
	p.Helper()
	state := run(p.T, "dumpe2fs", "-h", path)
	if !strings.Contains(state, "state:         clean") || strings.Contains(state, "needs_recovery") {
		p.Errorf("%s was not unmounted: %s", path, state)
	}
}

// TestBlockVolume checks that containers of a pod share a disk, and that other pods are refused by name. The disk
// is free and clean after the last container.
func TestBlockVolume(t *testing.T) {
	for name, forks := range map[string]bool{"clone": enginetest.Clones, "fork": enginetest.Forks} {
		t.Run(name, func(t *testing.T) {
			p, path := newBlockPods(t, forks), diskFile(t, 300<<20)
			one, two := p.pod("one").ID, p.pod("two").ID
			part := ext4("/part", path)
			part.SubPath = "dir/part"
			a := p.must(p.create(one, "a", ext4("/data", path), part))
			b := p.must(p.create(one, "b", ext4("/data", path, "ro")))
			p.says(p.sh(a, `echo kept >/data/file; echo part >/part/f
				cat /data/dir/part/f; df -m /data | tail -1 | tr -s " " | cut -d" " -f2`), "part\n271")
			p.says(p.sh(b, "cat /data/file; echo x >/data/file"), "kept\nsh: can't create /data/file: Read-only file system")
			_, err := p.create(two, "c", ext4("/data", path))
			if !errors.Is(err, blocks.ErrInUse) || !strings.Contains(err.Error(), path) {
				t.Errorf("a disk of another pod: %v", err)
			}
			p.remove(a)
			p.says(p.sh(b, "cat /data/file"), "kept")
			p.remove(b)
			p.clean(path)
			c := p.must(p.create(two, "c", ext4("/data", path)))
			p.says(p.sh(c, "cat /data/file /data/dir/part/f; echo more >/data/more"), "kept\npart")
			if err := p.RemovePod(p.ctx, two); err != nil {
				t.Fatal(err)
			}
			p.clean(path)
			d := p.must(p.create(one, "d", ext4("/data", path)))
			p.says(p.sh(d, "cat /data/more"), "more")
		})
	}
}

// TestBlockVolumeKilled checks that the disk survives the shim, which finds it again, and the VM. The next VM
// replays the journal, so synced data is there at once.
func TestBlockVolumeKilled(t *testing.T) {
	p, path := newBlockPods(t, enginetest.Clones), diskFile(t, 100<<20)
	pod := p.pod("one")
	a := p.must(p.create(pod.ID, "a", ext4("/data", path)))
	p.says(p.sh(a, "echo kept >/data/file; sync"), "")
	if err := unix.Kill(pod.ShimPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "another shim", func() bool {
		f, err := p.Facts(p.ctx, pod.ID)
		return err == nil && f.ShimPID != 0 && f.ShimPID != pod.ShimPID
	})
	p.says(p.sh(a, "cat /data/file"), "kept")
	b := p.must(p.create(pod.ID, "b", ext4("/data", path)))
	p.remove(a, b)
	p.clean(path)
	c := p.must(p.create(pod.ID, "c", ext4("/data", path)))
	p.says(p.sh(c, "echo more >>/data/file; sync; while :; do echo lost >>/data/lost; done >/dev/null 2>&1 &"), "")
	if err := unix.Kill(pod.VMPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d := p.must(p.create(p.pod("two").ID, "d", ext4("/data", path)))
	p.says(p.sh(d, "cat /data/file"), "kept\nmore")
}

// slotNode makes a node of the disk in the VM's first writable slot after the scratch disk.
const slotNode = `for d in /sys/block/vd*; do
	[ "$(tr -d "\\000" <$d/serial)" = slot1 ] && mknod $1 b $(tr : " " <$d/dev)
done; test -b $1 || echo none`

// TestBlockVolumeHeld checks that a volume that the guest could not unmount is released when the pod's next
// container needs it. A failed container releases its own volumes.
func TestBlockVolumeHeld(t *testing.T) {
	p, path, other := newBlockPods(t, enginetest.Clones), diskFile(t, 100<<20), diskFile(t, 200<<20)
	pod := p.pod("one").ID
	root := p.must(p.createAs(pod, "root", true))
	a := p.must(p.create(pod, "a", ext4("/data", path)))
	p.says(p.sh(a, "echo kept >/data/file; sync"), "")
	p.says(p.sh(root, "mkdir /m; set -- /tmp/n; mkdir -p /tmp; "+slotNode+"; mount -t ext4 $1 /m && cat /m/file"), "kept")
	p.remove(a)
	if _, err := p.create(pod, "b", ext4("/data", path)); !errors.Is(err, blocks.ErrInUse) {
		t.Errorf("for a VM that cannot unmount it: %v", err)
	}
	p.says(p.sh(root, "umount /m"), "")
	c := p.must(p.create(pod, "c", ext4("/data", path)))
	p.says(p.sh(c, "cat /data/file"), "kept")
	// The failure of another container's volume is not this one's fault.
	taken, err := blocks.Open(p.ctx, other, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	free := diskFile(t, 50<<20)
	if _, err := p.create(pod, "d", ext4("/free", free), ext4("/other", other)); !errors.Is(err, blocks.ErrInUse) {
		t.Errorf("create with a disk that is in use: got %v, want %v", err, blocks.ErrInUse)
	}
	now, err := blocks.Open(p.ctx, free, 0, false)
	if err != nil {
		t.Fatalf("the failed container's other disk: %v", err)
	}
	now.Close()
	taken.Close()
	p.remove(c)
	// The guest's old device exists while a container has it open. The next disk is another device.
	p.says(p.sh(root, "set -- /tmp/o; "+slotNode+"; sleep 1000 <$1 >/dev/null 2>&1 &"), "")
	for at, tt := range map[string]struct {
		disk string
		kib  int
	}{"/e": {other, 180_000}, "/f": {free, 40_000}} {
		id := p.must(p.create(pod, "e"+at[1:], ext4(at, tt.disk)))
		kib, err := strconv.Atoi(p.sh(id, "df -k "+at+" | awk 'END {print $2}'"))
		if err != nil || kib < tt.kib || kib > 2*tt.kib {
			t.Errorf("%s has %d KiB: %v", at, kib, err)
		}
		p.remove(id)
	}
	p.clean(path)
	p.clean(other)
	p.clean(free)
}

// TestBlockDevice checks that a device is a node only in the container that asked for it, with the requested access
// and its own size.
func TestBlockDevice(t *testing.T) {
	p, path := newBlockPods(t, enginetest.Clones), filepath.Join(realDir(t), "disk")
	const size = 70 << 30
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	loop := strings.TrimSpace(run(t, "losetup", "--find", "--show", path))
	t.Cleanup(func() { run(t, "losetup", "--detach", loop) })
	device := func(access string) containerv1.Mount {
		return containerv1.Mount{
			Destination: "/dev/xvda", Group: 6,
			Source: containerv1.Block{Name: loop, Access: access, Mode: 0o660, ReadOnly: !strings.Contains(access, "w")},
		}
	}
	pod := p.pod("one").ID
	a := p.must(p.create(pod, "a", device("rw")))
	p.says(p.sh(a, `
		stat -c "%F %a %u %g" /dev/xvda; blockdev --getsize64 /dev/xvda
		echo written | dd of=/dev/xvda bs=8 seek=1 conv=fsync status=none; dd if=/dev/xvda bs=8 skip=1 count=1 status=none`),
		"block special file 660 0 6\n"+strconv.FormatInt(size, 10)+"\nwritten")
	other := p.must(p.create(pod, "other"))
	// Nor can it reach a disk of the VM by a node that it makes.
	p.says(p.sh(other, `ls /dev/xvda; mkdir /n
		for n in $(seq 0 15); do mknod /n/$n b $(sed -n "s/ virtblk//p" /proc/devices) $((n * 16)) || echo not made; done
		for n in /n/*; do head -c 1 $n >/dev/null && echo "$n is open"; done 2>&1 | grep -v "Operation not permitted"`),
		"ls: /dev/xvda: No such file or directory")
	p.remove(a)
	r := p.must(p.create(pod, "r", device("r")))
	p.says(p.sh(r, `blockdev --getsize64 /dev/xvda; dd if=/dev/xvda bs=8 skip=1 count=1 status=none; echo x >/dev/xvda`),
		strconv.FormatInt(size, 10)+"\nwritten\nsh: can't create /dev/xvda: Operation not permitted")
}
