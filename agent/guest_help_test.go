package agent_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/channel"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// patience bounds one call to a VM among many under emulation.
const patience = 90 * time.Second

// guest is a cloned VM with the agent of this source.
type guest struct {
	t       testing.TB
	vm      hypervisor.VM
	session *channel.Session
	*agentv1.Client
}

// template is the template of all VMs of a test run.
type template struct {
	saved  hypervisortest.Saved
	driver hypervisor.Driver
	image  string // an erofs disk of busybox
	disks  scratch.Maker
}

func newTemplate(t testing.TB) *template {
	t.Helper()
	driver, err := qemu.New()
	if err != nil {
		t.Fatal(err)
	}
	bundle := hypervisortest.Bundle(t)
	m := hypervisor.VMConfig{
		Kernel: filepath.Join(bundle, "vmlinux"), Initrd: withAgent(t, filepath.Join(bundle, "initrd")),
		Cmdline: "quiet panic=-1 cryptomgr.notests init_on_alloc=0 noreplace-smp no5lvl memhp_default_state=online",
		Accel:   hypervisor.TCG, VCPUs: 1, Memory: 256, MaxMem: 1024, Slots: 4, Scratch: 1, Network: hypervisor.NetworkRestricted,
	}
	dir := t.TempDir()
	tmpl := &template{driver: driver, image: busyboxDisk(t), disks: scratch.Maker{Templates: dir}}
	tmpl.saved = hypervisortest.Save(t, driver, m, func(vm hypervisor.VM) {
		s := dial(t, vm, false)
		s.Close()
	})
	return tmpl
}

func dial(t testing.TB, vm hypervisor.VM, resume bool) *channel.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(patience))
	defer cancel()
	s, err := channel.Dial(ctx, vm.Connect, channel.Options{Hello: channel.Hello{Version: agentv1.Version}, Resume: resume})
	if err != nil {
		t.Fatal(vm.Explain("reach the agent", err))
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// clone starts an unconfigured VM.
func (tm *template) clone(t testing.TB) *guest {
	t.Helper()
	vm := tm.saved.Clone(t, tm.driver)
	began := time.Now()
	g := &guest{t: t, vm: vm}
	g.connect(false)
	t.Logf("first answer after %v", time.Since(began))
	return g
}

// connect starts a new session, like a new shim.
func (g *guest) connect(resume bool) {
	g.t.Helper()
	g.session = dial(g.t, g.vm, resume)
	g.Client = agentv1.NewClient(g.session.Open)
}

func (g *guest) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(patience))
	g.t.Cleanup(cancel)
	return ctx
}

// start clones and configures a VM, with the image "busybox" and a scratch disk mounted.
func (tm *template) start(t testing.TB, change ...func(*agentv1.Configure)) *guest {
	t.Helper()
	g := tm.clone(t)
	c := agentv1.Configure{
		Sandbox: "test", Entropy: make([]byte, 64), Time: time.Now(), Hostname: "pod-one",
		MachineID: randomHex(16), Resolv: "nameserver 10.0.2.3\n", Hosts: "127.0.0.1 localhost\n10.0.2.15 pod-one\n",
		Network: &agentv1.Network{
			MAC:       "52:54:00:12:34:" + randomHex(1),
			Addresses: []string{"10.0.2.15/24"},
			Gateways:  []string{"10.0.2.2"},
			MTU:       1400,
		},
	}
	rand.Read(c.Entropy)
	for _, f := range change {
		f(&c)
	}
	ctx := g.ctx()
	done, err := g.Configure(ctx, c)
	if err != nil {
		t.Fatal(g.vm.Explain("configure", err))
	}
	if again, err := g.Configure(ctx, c); err != nil || again != done { // a new shim may ask
		t.Errorf("configure again: %+v, %v; at first %+v", again, err, done)
	}
	if done.Kernel == "" || done.Crun == "" || len(done.BootID) != 36 {
		t.Errorf("configured: %+v", done)
	}
	disk := filepath.Join(t.TempDir(), "scratch")
	if err := tm.disks.Create(ctx, disk, 64<<20); err != nil {
		t.Fatal(err)
	}
	g.attach(0, disk, hypervisor.ReadWrite)
	g.attach(1, tm.image, hypervisor.ReadOnly)
	for _, m := range []agentv1.Mount{{Name: "scratch", FS: "ext4"}, {Name: "busybox", Slot: 1, FS: "erofs", ReadOnly: true}} {
		if err := g.Mount(ctx, m); err != nil {
			t.Fatal(g.vm.Explain("mount", err))
		}
	}
	return g
}

func (g *guest) attach(slot int, path string, mode hypervisor.DiskMode) {
	g.t.Helper()
	flag := os.O_RDONLY
	if mode == hypervisor.ReadWrite {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	defer f.Close()
	if err := g.vm.Attach(g.ctx(), slot, f, mode); err != nil {
		g.t.Fatal(err)
	}
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// spec is an OCI specification to start from.
func spec(args ...string) map[string]any {
	return map[string]any{
		"ociVersion": "1.0.2",
		"hostname":   "ignored",
		"root":       map[string]any{"path": "ignored"},
		"process":    process(args...),
		"mounts": []any{
			mount("/proc", "proc", "proc", "nosuid", "noexec", "nodev"),
			mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
			mount("/dev/pts", "devpts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
			mount("/dev/shm", "bind", "/dev/shm", "rbind", "rw", "nosuid", "nodev", "noexec"),
			mount("/sys", "sysfs", "sysfs", "nosuid", "noexec", "nodev", "ro"),
			mount("/sys/fs/cgroup", "cgroup", "cgroup", "nosuid", "noexec", "nodev", "ro"),
		},
		"linux": map[string]any{
			"namespaces": []any{
				map[string]any{"type": "pid"}, map[string]any{"type": "mount"}, map[string]any{"type": "cgroup"},
				map[string]any{"type": "network"},
			},
		},
	}
}

// change changes a specification at a path of keys.
func change(spec map[string]any, value any, path ...string) map[string]any {
	at := spec
	for _, key := range path[:len(path)-1] {
		next, ok := at[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[key] = next
		}
		at = next
	}
	at[path[len(path)-1]] = value
	return spec
}

// namespaces are a specification's namespaces: "type" or "type=path".
func namespaces(all ...string) []any {
	var out []any
	for _, text := range all {
		kind, path, _ := strings.Cut(text, "=")
		out = append(out, map[string]any{"type": kind, "path": path})
	}
	return out
}

// mount is a mount of an OCI specification.
func mount(destination, kind, source string, options ...string) map[string]any {
	return map[string]any{"destination": destination, "type": kind, "source": source, "options": options}
}

func process(args ...string) map[string]any {
	return map[string]any{
		"args": args, "cwd": "/", "env": []string{"PATH=/bin:/sbin"}, "user": map[string]any{"uid": 0, "gid": 0},
		"capabilities": map[string]any{"bounding": []string{"CAP_KILL"}, "effective": []string{"CAP_KILL"}, "permitted": []string{"CAP_KILL"}},
	}
}

func raw(t testing.TB, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// create creates a container, and deletes it at the end of the test.
func (g *guest) create(id string, spec map[string]any, change ...func(*agentv1.Create)) {
	g.t.Helper()
	if err := g.tryCreate(id, spec, change...); err != nil {
		g.t.Fatal(g.vm.Explain("create", err))
	}
}

func (g *guest) tryCreate(id string, spec map[string]any, change ...func(*agentv1.Create)) error {
	g.t.Helper()
	c := agentv1.Create{Container: id, RootRecord: containerv1.RootRecord{Image: "busybox"}, Spec: raw(g.t, spec)}
	for _, f := range change {
		f(&c)
	}
	created, err := g.Create(g.ctx(), c)
	if err == nil && created.PID <= 1 {
		g.t.Errorf("create %s: process %d", id, created.PID)
	}
	return err
}

// launch creates and starts a container.
func (g *guest) launch(id string, spec map[string]any, change ...func(*agentv1.Create)) {
	g.t.Helper()
	g.create(id, spec, change...)
	g.must(g.Start(g.ctx(), agentv1.Process{Container: id}))
}

func (g *guest) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *guest) exit(p agentv1.Process) agentv1.Exit {
	g.t.Helper()
	e, err := g.Wait(g.ctx(), p)
	g.must(err)
	return e
}

// read reads a stream to its end and acknowledges all of it.
func (g *guest) read(p agentv1.Process, stream string) string {
	g.t.Helper()
	s, err := g.Output(g.ctx(), agentv1.Output{Process: p, Stream: stream})
	g.must(err)
	defer s.Close()
	var all strings.Builder
	for {
		offset, data, err := s.Next()
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			g.t.Fatalf("%s of %v after %q: %v", stream, p, all.String(), err)
		}
		if int(offset) != all.Len() {
			g.t.Fatalf("%s of %v: offset %d after %d bytes", stream, p, offset, all.Len())
		}
		all.Write(data)
		s.Ack(offset + int64(len(data)))
	}
}

// until waits for a stream to contain a text, and acknowledges nothing: the next reader receives all of it.
func (g *guest) until(p agentv1.Process, stream, text string) {
	g.t.Helper()
	s, err := g.Output(g.ctx(), agentv1.Output{Process: p, Stream: stream})
	g.must(err)
	defer s.Close()
	var all strings.Builder
	for !strings.Contains(all.String(), text) {
		_, data, err := s.Next()
		if err != nil {
			g.t.Fatalf("%s of %v after %q: %v", stream, p, all.String(), err)
		}
		all.Write(data)
	}
}

// exec runs a command to its end.
func (g *guest) exec(container, id string, p map[string]any) (string, agentv1.Exit) {
	g.t.Helper()
	name := agentv1.Process{Container: container, Exec: id}
	_, err := g.Exec(g.ctx(), agentv1.Exec{Process: name, Spec: raw(g.t, p)})
	g.must(err)
	out := g.read(name, "stdout") + g.read(name, "stderr")
	exit := g.exit(name)
	_, err = g.Delete(g.ctx(), name)
	g.must(err)
	return out, exit
}

// withAgent returns an initrd with this source's agent as /init: the kernel unpacks one archive after the other.
func withAgent(t testing.TB, base string) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "init")
	cmd := testgo.Command(t.Context(), "build", "-trimpath", "-ldflags=-s -w", "-o", program,
		"github.com/bulkhead-project/bulkhead/cmd/bulkhead-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.NewBuffer(all)
	pad := func() { b.Write(make([]byte, -b.Len()&3)) }
	pad()
	for _, e := range []struct {
		name string
		mode int
		data []byte
	}{{"init", 0o100755, data}, {"TRAILER!!!", 0, nil}} {
		fmt.Fprintf(b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			b.Len(), e.mode, 0, 0, 1, 0, len(e.data), 0, 0, 0, 0, len(e.name)+1, 0)
		b.WriteString(e.name + "\x00")
		pad()
		b.Write(e.data)
		pad()
	}
	out := filepath.Join(dir, "initrd")
	if err := os.WriteFile(out, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return out
}

// busyboxDisk returns an erofs disk with Debian's static busybox.
func busyboxDisk(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	write := func(path, content string, mode os.FileMode) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("busybox-static: %v", err)
	}
	write("bin/busybox", string(busybox), 0o755)
	const applets = `mknod ln sh true false cat echo sleep id hostname ls stat head tail dd seq grep wc stty test od ip nc ps
		kill printf readlink tr date mkdir touch df mount sync env timeout httpd dnsdomainname ipcs sort pwd tty cut ionice`
	for _, applet := range strings.Fields(applets) {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"data": "/mnt/data", "up": "../../run/x"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	write("bin/noexec", "#!/bin/sh\n", 0o644)
	write("bin/garbage", "\x01\x02\x03\x04 not a program", 0o755)
	write("etc/passwd", "root:x:0:0::/root:/bin/sh\ndemo:x:1000:1001::/home/demo:/bin/sh\n4000:x:0:0::/root:/bin/sh\n", 0o644)
	write("etc/group", "root:x:0:\ndemo:x:1001:\nextra:x:2000:demo\n4000:x:0:\n", 0o644)
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "root", "home/demo"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o1777); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(t.TempDir(), "image.erofs")
	if out, err := exec.Command("mkfs.erofs", "--all-root", "-T0", disk, root).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.erofs: %v\n%s", err, out)
	}
	if err := os.Truncate(disk, hypervisor.SlotSize); err != nil {
		t.Fatal(err)
	}
	return disk
}
