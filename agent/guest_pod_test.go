package agent_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// testPod: two containers of one pod share network, IPC, UTS, shared memory and volumes, and nothing else.
func testPod(t *testing.T, tm *template) {
	g := tm.start(t)
	withVolume := func(s map[string]any) map[string]any {
		s["mounts"] = append(s["mounts"].([]any),
			mount("/disk", "bulkhead.emptydir", "disk"),
			mount("/data/sub", "bulkhead.emptydir", "disk"), // links of the image lead to missing directories
			mount("/up/sub", "bulkhead.emptydir", "disk"),
			mount("/mem", "bulkhead.emptydir", "mem", "medium=Memory", "size=1048576"),
		)
		return s
	}
	g.launch("a", withVolume(spec("sleep", "1000")))
	g.launch("b", withVolume(spec("sleep", "1000")))
	in := func(container, command string) string {
		t.Helper()
		out, e := g.exec(container, "x", process("sh", "-c", command))
		if e.Code != 0 {
			t.Errorf("%s: %s: exit %+v, %q", container, command, e, out)
		}
		return out
	}
	in("a", "echo one > /dev/shm/x; echo two > /disk/x; echo three > /mem/x; echo four > /tmp/x")
	if got := in("b", "cat /mnt/data/sub/x /data/sub/x /run/x/sub/x"); got != "two\ntwo\ntwo\n" {
		t.Errorf("below links: %q", got)
	}
	if got := in("b", "cat /dev/shm/x /disk/x /mem/x; ls /tmp"); got != "one\ntwo\nthree\n" {
		t.Errorf("b sees %q", got)
	}
	for _, file := range []string{"ns/net", "ns/ipc", "ns/uts"} {
		if a, b := in("a", "ls -l /proc/1/"+file), in("b", "ls -l /proc/1/"+file); a[strings.Index(a, "->"):] != b[strings.Index(b, "->"):] {
			t.Errorf("%s is not shared: %q, %q", file, a, b)
		}
	}
	if got := in("a", "echo $HOSTNAME; HOSTNAME=mine sh -c 'echo $HOSTNAME'"); got != "pod-one\nmine\n" {
		t.Errorf("HOSTNAME: %q", got)
	}
	if got := in("a", "ulimit -Hn"); got != "1048576\n" { // without a limit in the specification
		t.Errorf("open files: %q", got)
	}
	const identity = "pod-one\npod-one\nnameserver 10.0.2.3\n10.0.2.15 pod-one\n"
	if got := in("a", "hostname; cat /etc/hostname /etc/resolv.conf; tail -n 1 /etc/hosts"); got != identity {
		t.Errorf("identity: %q", got)
	}
	if got := in("a", "ps | wc -l"); strings.TrimSpace(got) > "5" {
		t.Errorf("a sees %q processes", got)
	}
	if got := in("a", "df -k /mem | tail -n 1"); !strings.Contains(got, " 1024 ") {
		t.Errorf("size of /mem: %q", got)
	}
	out, e := g.exec("a", "x", process("dd", "if=/dev/zero", "of=/mem/big", "bs=1M", "count=2"))
	if e.Code == 0 {
		t.Errorf("the volume's limit does not hold: %q", out)
	}
	network := in("a", `
		cat /sys/class/net/eth0/mtu
		ip addr show dev eth0 | grep -c 10.0.2.15/24
		ip route | grep -c 'default via 10.0.2.2'
		ip addr show lo | grep -c 127.0.0.1`)
	if network != "1400\n1\n1\n1\n" {
		t.Errorf("network: %q", network)
	}
	in("a", "head -c 3000000 /dev/zero > /root/file")
	stats, err := g.Stats(g.ctx(), agentv1.Process{Container: "a"})
	if err != nil || stats.RootfsBytes < 2900000 || stats.RootfsInodes < 2 {
		t.Errorf("stats = %+v, %v", stats, err)
	}
	in("a", "rm /mem/big; head -c 3000000 /dev/zero > /disk/file; head -c 65536 /dev/zero > /mem/file; sync")
	used, err := g.Usage(g.ctx())
	volumes := map[string]agentv1.VolumeUsage{}
	for _, v := range used.Volumes {
		volumes[v.Name] = v
	}
	t.Logf("volumes: %+v", used.Volumes)
	for name, least := range map[string]uint64{"disk": 3000000, "mem": 65536} {
		if v := volumes[name]; err != nil || v.Used < least || v.Used > least+1<<20 || v.Inodes < 2 || v.Capacity < v.Used || v.Available == 0 {
			t.Errorf("volume %s = %+v, %v", name, v, err)
		}
	}
	f, err := g.ReadFile(g.ctx(), agentv1.ReadFile{Container: "a", Path: "/disk/x", Limit: 3})
	if err != nil || string(f.Data) != "wo\n" {
		t.Errorf("ReadFile = %q, %v", f.Data, err)
	}
}

// testReconnect: if the host is replaced during output, no byte is lost.
func testReconnect(t *testing.T, tm *template) {
	g := tm.start(t)
	c := agentv1.Process{Container: "c"}
	const lines = 60000
	g.launch("c", spec("seq", fmt.Sprint(lines)))
	var got strings.Builder
	var acked int64
	for round := 0; ; round++ {
		out, err := g.Output(g.ctx(), agentv1.Output{Process: c, Stream: "stdout", Offset: acked})
		g.must(err)
		end := false
		for n := 0; n < 40<<10*(round+1) || round > 3; {
			offset, data, err := out.Next()
			if errors.Is(err, io.EOF) {
				end = true
				break
			}
			g.must(err)
			if offset != acked {
				t.Fatalf("round %d: offset %d, want %d", round, offset, acked)
			}
			got.Write(data)
			n += len(data)
			acked += int64(len(data))
			if round%2 == 0 {
				out.Ack(acked)
			}
		}
		if end {
			break
		}
		// The shim is killed: its connection ends at once, with data in transit.
		g.session.Close()
		began := time.Now()
		g.connect(round%2 == 0)
		t.Logf("reconnected in %v", time.Since(began))
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "%d\n", i+1)
	}
	if got.String() != want.String() {
		t.Errorf("got %d bytes, want %d, or others", got.Len(), want.Len())
	}
	if e := g.exit(c); e.Code != 0 {
		t.Errorf("exit = %+v", e)
	}
	list, err := g.List(g.ctx())
	if err != nil || len(list.Processes) != 1 || list.Processes[0].Exit == nil {
		t.Errorf("list = %+v, %v", list, err)
	}
}

// testBackpressure: unread output blocks only its own container.
func testBackpressure(t *testing.T, tm *template) {
	g := tm.start(t)
	full := agentv1.Process{Container: "full"}
	g.launch("full", spec("sh", "-c", "seq 200000; echo end >&2"))
	out, err := g.Output(g.ctx(), agentv1.Output{Process: full, Stream: "stdout"})
	g.must(err)
	defer out.Close()
	if _, _, err := out.Next(); err != nil { // no further reads and no Ack
		t.Fatal(err)
	}
	g.launch("other", spec("echo", "free"))
	if got := g.read(agentv1.Process{Container: "other"}, "stdout"); got != "free\n" {
		t.Errorf("other: %q", got)
	}
	list, err := g.List(g.ctx())
	g.must(err)
	for _, p := range list.Processes {
		if p.Container == "full" && p.Exit != nil {
			t.Error("a container with unread output has ended")
		}
	}
	// A newer reader replaces the older one and receives all output.
	if got := g.read(full, "stdout"); !strings.HasPrefix(got, "1\n2\n") || !strings.HasSuffix(got, "200000\n") {
		t.Errorf("%d bytes", len(got))
	}
	for {
		if _, _, err := out.Next(); errors.Is(err, io.EOF) {
			t.Error("the older reader reached the end")
		} else if err != nil {
			break
		}
	}
	if got := g.read(full, "stderr"); got != "end\n" {
		t.Errorf("stderr %q", got)
	}
}

// testPause pauses a container and then the whole VM. The channel survives and the clock is set.
func testPause(t *testing.T, tm *template) {
	g := tm.start(t)
	c := agentv1.Process{Container: "c"}
	g.launch("c", spec("sh", "-c", "while :; do echo x; sleep 0.05; done"))
	out, err := g.Output(g.ctx(), agentv1.Output{Process: c, Stream: "stdout"})
	g.must(err)
	defer out.Close()
	next := func() {
		t.Helper()
		if _, _, err := out.Next(); err != nil {
			t.Fatal(err)
		}
	}
	next()
	g.must(g.Pause(g.ctx(), c))
	list, err := g.List(g.ctx())
	if err != nil || !list.Processes[0].Paused {
		t.Errorf("list = %+v, %v", list, err)
	}
	request := agentv1.Exec{Process: agentv1.Process{Container: "c", Exec: "x"}, Spec: raw(t, process("true"))}
	if _, err := g.Exec(g.ctx(), request); err == nil {
		t.Error("exec in a paused container")
	}
	g.must(g.Resume(g.ctx(), c))
	next()
	next()

	g.must(g.vm.Pause(g.ctx()))
	time.Sleep(1500 * time.Millisecond) // the test needs real time to pass
	g.must(g.vm.Resume(g.ctx()))
	g.must(g.SetTime(g.ctx(), agentv1.SetTime{Time: time.Now()}))
	next()
	now, _ := g.exec("c", "date", process("date", "+%s"))
	var seconds int64
	fmt.Sscan(now, &seconds)
	if d := time.Since(time.Unix(seconds, 0)); d > 10*time.Second || d < -time.Second {
		t.Errorf("the guest's clock is %v behind", d)
	}
	if err := g.session.Err(); err != nil {
		t.Error(err)
	}
}

// testDistinct compares two clones of one template.
func testDistinct(t *testing.T, tm *template) {
	identity := func(name string) (values []string) {
		g := tm.start(t, func(c *agentv1.Configure) { c.Hostname = name })
		g.launch("c", spec("sleep", "1000"))
		out, _ := g.exec("c", "x", process("sh", "-c", `
			head -c 16 /dev/urandom | od -An -tx1
			cat /etc/machine-id /proc/sys/kernel/random/boot_id /proc/sys/kernel/random/uuid /sys/class/net/eth0/address
			hostname`))
		return strings.Fields(strings.ReplaceAll(strings.TrimSpace(out), " ", ""))
	}
	a, b := identity("one"), identity("two")
	if len(a) != 6 || len(b) != 6 {
		t.Fatalf("a = %q, b = %q", a, b)
	}
	for i := range a {
		if a[i] == b[i] {
			t.Errorf("value %d of two clones: got %q in both, want different ones", i, a[i])
		}
	}
	if diff := cmp.Diff([]string{"one", "two"}, []string{a[5], b[5]}); diff != "" {
		t.Error(diff)
	}
}

// testSize measures the agent from a container that sees its processes.
func testSize(t *testing.T, tm *template) {
	g := tm.start(t)
	s := spec("sleep", "1000")
	s["linux"].(map[string]any)["namespaces"] = []any{map[string]any{"type": "mount"}}
	g.launch("c", s)
	out, _ := g.exec("c", "x", process("grep", "-E", "^(Name|VmRSS|RssAnon|Threads)", "/proc/1/status"))
	var anon int
	for line := range strings.Lines(out) {
		fmt.Sscanf(line, "RssAnon: %d kB", &anon)
	}
	t.Logf("%q", out)
	if anon == 0 || anon > 8<<10 {
		t.Errorf("the agent has %d KiB of its own: %q", anon, out)
	}
}
