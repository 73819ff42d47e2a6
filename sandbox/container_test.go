package sandbox

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

func TestExitsAreReal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		guest  agentv1.Exit
		code   int
		signal int
		reason string
	}{
		{"success", agentv1.Exit{}, 0, 0, ReasonCompleted},
		{"code", agentv1.Exit{Code: 42}, 42, 0, ReasonError},
		{"signal", agentv1.Exit{Code: 143, Signal: 15}, 143, 15, ReasonError},
		{"out of memory", agentv1.Exit{Code: 137, Signal: 9, OOMKilled: true}, 137, 9, ReasonOOMKilled},
		{"out of memory and code 0", agentv1.Exit{OOMKilled: true}, 137, 0, ReasonOOMKilled},
		{"hostile code", agentv1.Exit{Code: 1 << 40}, 255, 0, ReasonError},
		{"hostile negative code", agentv1.Exit{Code: -1}, 255, 0, ReasonError},
		{"hostile signal", agentv1.Exit{Code: 1, Signal: 4000}, 1, 0, ReasonError},
		{"hostile time", agentv1.Exit{At: time.Unix(1<<37, 0)}, 0, 0, ReasonCompleted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := running(t)
			before := time.Now()
			h.started("c").finish(tt.guest)
			got := h.wait(Process{Container: "c"})
			if got.Code != tt.code || got.Signal != tt.signal || got.Reason != tt.reason {
				t.Errorf("exit %+v", got)
			}
			if got.At.Before(before) || got.At.After(time.Now()) {
				t.Errorf("ended at %v", got.At)
			}
			if tt.guest.OOMKilled {
				h.event(OOM)
			}
		})
	}
}

func TestCommandThatCannotRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		op   agentv1.Op
		err  error
		code int
	}{
		{"missing, at create", agentv1.OpCreate, agentv1.ErrNoCommand, 127},
		{"missing, at start", agentv1.OpStart, agentv1.ErrNoCommand, 127},
		{"not executable", agentv1.OpStart, agentv1.ErrNotExec, 126},
		{"other refusal", agentv1.OpStart, errdefs.ErrInvalidArgument, 128},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := running(t)
			h.agent.refuse(tt.op, tt.err)
			h.must(h.box.CreateContainer(h.ctx, h.container("c")))
			id := Process{Container: "c"}
			if _, err := h.box.StartProcess(h.ctx, id); !errors.Is(err, tt.err) {
				t.Fatalf("start: %v", err)
			}
			if got := h.wait(id); got.Code != tt.code || got.Reason != ReasonCannotRun || got.Message == "" {
				t.Errorf("exit %+v", got)
			}
			_, err := h.box.DeleteProcess(h.ctx, id)
			h.must(err)
		})
	}
}

func TestFailedContainerLeavesNothing(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, tt := range []struct {
		name   string
		break_ func(*harness)
	}{
		{"attach", func(h *harness) { h.vm().refuse("Attach", boom) }},
		{"mount", func(h *harness) { h.agent.refuse(agentv1.OpMount, boom) }},
		{"create", func(h *harness) { h.agent.refuse(agentv1.OpCreate, boom) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := running(t)
			tt.break_(h)
			if err := h.box.CreateContainer(h.ctx, h.container("c")); err == nil || !strings.Contains(err.Error(), "boom") {
				t.Fatalf("create: %v", err)
			}
			if left, _ := os.ReadDir(h.dir + "/containers"); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
			if st := h.box.Status(); len(st.Processes) != 0 {
				t.Errorf("processes %v", st.Processes)
			}
			h.vm().refuse("Attach", nil)
			h.agent.refuse(agentv1.OpMount, nil)
			h.agent.refuse(agentv1.OpCreate, nil)
			h.started("c") // the id, the slot and the directory are free
		})
	}
}

// TestUndoReachesTheGuest: a failed creation is undone in the guest, which may have created the container.
func TestUndoReachesTheGuest(t *testing.T) {
	t.Parallel()
	h := running(t)
	id := Process{Container: "c"}
	h.agent.answer(agentv1.OpCreate, func(conn net.Conn) { // it is created, and the answer is lost
		h.agent.mu.Lock()
		h.agent.procs[id] = newFakeProc(false)
		h.agent.mu.Unlock()
		conn.Close()
	})
	if err := h.box.CreateContainer(h.ctx, h.container("c")); err == nil {
		t.Fatal("created without an answer")
	}
	if _, err := h.agent.proc(id); !errors.Is(err, errdefs.ErrNotFound) || h.agent.count(agentv1.OpDelete) != 1 {
		t.Errorf("the guest still has it after %d deletions: %v", h.agent.count(agentv1.OpDelete), err)
	}
}

// TestMemoryGrowsBeforeTheLimits: the VM grows before a limit is raised and shrinks after it is lowered.
func TestMemoryGrowsBeforeTheLimits(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	h.agent.resized()
	h.must(h.box.Resize(h.ctx, agentv1.PodLimits{}, 1024))
	got := h.agent.resized()
	if !slices.Equal(got, []agentv1.Op{"grow 1024", agentv1.OpUpdate}) {
		t.Errorf("larger: %q", got)
	}
	h.must(h.box.Resize(h.ctx, agentv1.PodLimits{}, 512))
	if got = h.agent.resized(); !slices.Equal(got, []agentv1.Op{agentv1.OpUpdate, "grow 512"}) {
		t.Errorf("smaller: %q", got)
	}
	h.vm().refuse("Grow", errors.New("boom"))
	if err := h.box.Resize(h.ctx, agentv1.PodLimits{}, 2048); err == nil {
		t.Error("limits were raised beyond the VM's memory")
	}
	if got = h.agent.resized(); !slices.Equal(got, []agentv1.Op{"grow 2048"}) {
		t.Errorf("without growth: %q", got)
	}
}

// TestSlotOfAFailedContainerIsFree: a container that fails because its state cannot be stored releases its image.
func TestSlotOfAFailedContainerIsFree(t *testing.T) {
	t.Parallel()
	h := running(t)
	state := filepath.Join(h.dir, "state.json")
	h.must(os.Rename(state, state+".aside"))
	h.must(os.Mkdir(state, 0o700)) // blocks the file of that name
	if err := h.box.CreateContainer(h.ctx, h.container("c")); err == nil {
		t.Error("created without a stored state")
	}
	h.must(os.Remove(state))
	h.must(os.Rename(state+".aside", state))
	if users, ok := h.box.devices.Slots.Users("image-c"); ok || h.vm().attached() != 1 {
		t.Errorf("the image has %d users, and a slot: %v", users, ok)
	}
}

// TestSlotThatStaysFilled: a slot with a disk that cannot be detached does not count as empty. The deletion of the next
// container empties it.
func TestSlotThatStaysFilled(t *testing.T) {
	t.Parallel()
	h := running(t)
	boom := errors.New("boom")
	h.agent.refuse(agentv1.OpMount, boom)
	h.vm().refuse("Detach", boom)
	if err := h.box.CreateContainer(h.ctx, h.container("c")); err == nil {
		t.Fatal("created without its image")
	}
	h.agent.refuse(agentv1.OpMount, nil)
	h.started("c").finish(exited(0))
	if n := h.vm().attached(); n != 3 {
		t.Errorf("%d slots are filled, one of them should be empty", n)
	}
	h.vm().refuse("Detach", nil)
	h.wait(Process{Container: "c"})
	_, err := h.box.DeleteProcess(h.ctx, Process{Container: "c"})
	h.must(err)
	if n := h.vm().attached(); n != 2 {
		t.Errorf("%d slots are filled, want the scratch disk and the image", n)
	}
}

func TestInvalidContainers(t *testing.T) {
	t.Parallel()
	h := running(t)
	for _, tt := range []struct {
		name string
		edit func(*ContainerConfig)
	}{
		{"path as id", func(c *ContainerConfig) { c.ID = "../c" }},
		{"no id", func(c *ContainerConfig) { c.ID = "" }},
		{"no image", func(c *ContainerConfig) { c.Root = containerv1.Image{} }},
		{"scratch as image", func(c *ContainerConfig) { c.Root = containerv1.Image{ID: "scratch"} }},
		{"no root", func(c *ContainerConfig) { c.Root = nil }},
		{"no standard streams", func(c *ContainerConfig) { c.Stdio = nil }},
		{"a log's file and no log", func(c *ContainerConfig) { c.Stdio = containerv1.Discard{} }},
		{"a log's file and descriptors", func(c *ContainerConfig) { c.Stdio = containerv1.Descriptors{} }},
		{"a volume without an id", func(c *ContainerConfig) { c.Volumes = []Volume{{}} }},
		{"log without a file", func(c *ContainerConfig) { c.Log = nil }},
		{"no disk", func(c *ContainerConfig) { c.RootFile = nil }},
	} {
		c := h.container("c")
		tt.edit(&c)
		if err := h.box.CreateContainer(h.ctx, c); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	h.started("c")
	for _, stdio := range []containerv1.Stdio{nil, containerv1.Log{File: "l"}} {
		e := ExecConfig{Process: Process{Container: "c", Exec: "e"}, Spec: []byte(`{}`), Stdio: stdio}
		if err := h.box.CreateExec(h.ctx, e); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("exec with %#v: %v", stdio, err)
		}
	}
	if err := h.box.CreateContainer(h.ctx, h.container("c")); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("second container of one id: %v", err)
	}
}

// TestRingYields: the disk for large answers takes a free slot and stays when its container is deleted. It is detached
// when an image needs its slot, after unused images. Without a free slot, a container is created without it.
func TestRingYields(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	config := h.config()
	config.VM.Slots = 3 // two for images
	h.must(h.box.Create(h.ctx, config, Files{Scratch: h.scratch()}))
	h.must(h.box.Start(h.ctx))
	create := func(id string, ring bool) {
		t.Helper()
		c := h.container(id)
		c.Root = containerv1.Image{ID: "of-" + id}
		if ring {
			disk := h.scratch()
			c.Volumes = []Volume{{ID: agentv1.RingDisk, Disk: disk, Block: &containerv1.Block{Name: agentv1.RingDisk, ReadOnly: true}}}
		}
		h.must(h.box.CreateContainer(h.ctx, c))
	}
	remove := func(id string) {
		t.Helper()
		_, err := h.box.DeleteProcess(h.ctx, Process{Container: id})
		h.must(err)
	}
	has := func(when string, want ...string) {
		t.Helper()
		images, volumes := h.box.devices.Slots.Stored()
		got := slices.Sorted(maps.Values(images))
		if !slices.Equal(got, want) || len(volumes) > 0 {
			t.Errorf("%s: %v, %v, want %v", when, got, volumes, want)
		}
	}
	create("a", true)
	has("with a free slot", "of-a", agentv1.RingDisk)
	remove("a")
	create("b", true)
	has("in the place of an image", "of-b", agentv1.RingDisk)
	create("c", false)
	has("a slot is needed", "of-b", "of-c")
	remove("b")
	remove("c")
	create("d", true)
	has("images give way", "of-d", agentv1.RingDisk)
}

func TestImagesShareSlots(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	config := h.config()
	config.VM.Slots = 3 // two for images
	h.must(h.box.Create(h.ctx, config, Files{Scratch: h.scratch()}))
	h.must(h.box.Start(h.ctx))
	make_ := func(id, image string) error {
		c := h.container(id)
		c.Root = containerv1.Image{ID: image}
		return h.box.CreateContainer(h.ctx, c)
	}
	remove := func(id string) {
		_, err := h.box.DeleteProcess(h.ctx, Process{Container: id})
		h.must(err)
	}
	h.must(make_("a1", "a"))
	h.must(make_("a2", "a"))
	if n := h.vm().attached(); n != 2 {
		t.Fatalf("%d disks attached for scratch and one image", n)
	}
	h.must(make_("b1", "b"))
	if err := make_("c1", "c"); !errors.Is(err, errdefs.ErrResourceExhausted) {
		t.Fatalf("third image: %v", err)
	}
	remove("a1")
	if err := make_("c1", "c"); !errors.Is(err, errdefs.ErrResourceExhausted) {
		t.Fatalf("an image in use was evicted: %v", err)
	}
	remove("a2")
	mounts := h.agent.count(agentv1.OpMount)
	h.must(make_("a3", "a"))
	if n := h.agent.count(agentv1.OpMount); n != mounts {
		t.Error("a mounted image was mounted again")
	}
	remove("a3")
	h.must(make_("c1", "c"))
	want := map[string]int{"scratch": 0, "c": 1, "b": 2}
	if diff := cmp.Diff(want, h.agent.mounts); diff != "" {
		t.Error(diff)
	}
}

func TestImageIsMountedOnceForContainersAtOnce(t *testing.T) {
	t.Parallel()
	h := running(t)
	before := h.agent.count(agentv1.OpMount)
	errs := make(chan error, 8)
	for i := range 8 {
		c := h.container("c" + string(rune('0'+i)))
		c.Root = containerv1.Image{ID: "shared"}
		go func() { errs <- h.box.CreateContainer(h.ctx, c) }()
	}
	for range 8 {
		h.must(<-errs)
	}
	if n := h.agent.count(agentv1.OpMount) - before; n != 1 {
		t.Errorf("mounted %d times", n)
	}
}

func TestContainerCalls(t *testing.T) {
	t.Parallel()
	h := running(t)
	id := Process{Container: "c"}
	c := h.container("c")
	c.Terminal = true
	h.must(h.box.CreateContainer(h.ctx, c))
	_, err := h.box.StartProcess(h.ctx, id)
	h.must(err)
	p := h.fake(id)
	h.must(h.box.ResizeProcess(h.ctx, id, 80, 24))
	if p.size != [2]uint16{80, 24} {
		t.Errorf("size %v", p.size)
	}
	h.must(h.box.PauseContainer(h.ctx, "c"))
	if err := h.box.PauseContainer(h.ctx, "c"); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("paused twice: %v", err)
	}
	h.must(h.box.ResumeContainer(h.ctx, "c"))
	st, err := h.box.ContainerStats(h.ctx, "c")
	h.must(err)
	if st.CPUUsec != 5 || time.Since(st.At) > time.Minute {
		t.Errorf("stats %+v", st)
	}
	pids, err := h.box.Pids(h.ctx, "c")
	h.must(err)
	if diff := cmp.Diff([]int{7}, pids); diff != "" {
		t.Error(diff)
	}
	h.must(h.box.CreateContainer(h.ctx, h.container("waits")))
	all, err := h.box.Stats(h.ctx)
	h.must(err)
	if all.Memory.Total != 256<<20 || len(all.Containers) != 1 || all.Containers["c"].CPUUsec != 5 {
		t.Errorf("statistics %+v", all)
	}
	data, err := h.box.ReadFile(h.ctx, "c", "/dev/termination-log", 10)
	h.must(err)
	if len(data) != 10 { // the agent sends 100
		t.Errorf("%d bytes, want at most 10", len(data))
	}
	h.must(h.box.UpdateContainer(h.ctx, "c", []byte(`{}`)))
	h.must(h.box.Resize(h.ctx, agentv1.PodLimits{}, 768))
	if got := h.box.Status().MemoryMiB; got != 768 {
		t.Errorf("grown to %d MiB", got)
	}
	h.must(h.box.Resize(h.ctx, agentv1.PodLimits{}, 0))
	if got := h.box.Status().MemoryMiB; got != 768 {
		t.Errorf("0 must not change the memory: %d MiB", got)
	}
	h.must(h.box.Resize(h.ctx, agentv1.PodLimits{}, 512))
	if got := h.box.Status().MemoryMiB; got != 512 {
		t.Errorf("shrunk to %d MiB", got)
	}
	h.must(h.box.Resize(h.ctx, agentv1.PodLimits{MemoryBytes: 1 << 30}, 1024))
	if got := h.box.Status().MemoryMiB; got != 1024 {
		t.Errorf("the pod is grown to %d MiB", got)
	}
	h.must(h.box.Resize(h.ctx, agentv1.PodLimits{}, 512))
	if got := h.box.Status().MemoryMiB; got != 512 {
		t.Errorf("the pod is shrunk to %d MiB", got)
	}
	if err := h.box.SignalProcess(h.ctx, id, 0, false); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("signal 0: %v", err)
	}
	if _, err := h.box.DeleteProcess(h.ctx, id); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("delete while running: %v", err)
	}
	h.must(h.box.SignalProcess(h.ctx, id, unix.SIGKILL, true))
	if got := h.wait(id); got.Code != 137 || got.Signal != 9 {
		t.Errorf("exit %+v", got)
	}
	if err := h.box.SignalProcess(h.ctx, id, unix.SIGTERM, false); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("signal to an ended container: %v", err)
	}
	conn, err := h.box.Forward(h.ctx, 80)
	h.must(err)
	defer conn.Close()
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4)
	if _, err := conn.Read(buf); err != nil || string(buf) != "ping" {
		t.Errorf("forwarded %q, %v", buf, err)
	}
}

func TestNeverStartedIsNeverCompleted(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.must(h.box.CreateContainer(h.ctx, h.container("c")))
	exit, err := h.box.DeleteProcess(h.ctx, Process{Container: "c"})
	h.must(err)
	if exit.Code == 0 || exit.Reason != ReasonNeverStarted {
		t.Errorf("exit %+v", exit)
	}
	if _, err := h.box.DeleteProcess(h.ctx, Process{Container: "c"}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
}

// TestKillBeforeStart: a created container that is killed before its start has ended.
func TestKillBeforeStart(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.must(h.box.CreateContainer(h.ctx, h.container("c")))
	began := time.Now()
	h.must(h.box.SignalProcess(h.ctx, Process{Container: "c"}, unix.SIGKILL, false))
	if exit := h.wait(Process{Container: "c"}); exit.Code != 137 {
		t.Errorf("exit %+v", exit)
	}
	if took := time.Since(began); took >= logPatience {
		t.Errorf("waited %v for output of a container that never ran", took)
	}
}

// TestAgentThatHangs: a call that its caller cancels is an error and does no harm.
func TestAgentThatHangs(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.agent.stall(agentv1.OpStats)
	h.started("c")
	got := make(chan error, 1)
	asked := func(ctx context.Context, times int) {
		go func() { _, err := h.box.ContainerStats(ctx, "c"); got <- err }()
		for h.agent.count(agentv1.OpStats) < times {
			time.Sleep(time.Millisecond)
		}
	}
	ctx, cancel := context.WithCancel(h.ctx)
	asked(ctx, 1)
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("stats: %v", err)
	}
	asked(h.ctx, 2)
	h.vm().die(nil)
	if err := <-got; !errors.Is(err, ErrVMGone) {
		t.Errorf("call that the VM's end interrupts: %v", err)
	}
}
