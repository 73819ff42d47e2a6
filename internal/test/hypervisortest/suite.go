package hypervisortest

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// Suite checks a driver against the contract of package hypervisor.
type Suite struct {
	Driver hypervisor.Driver
	VM     hypervisor.VMConfig // as returned by VMConfig
}

// Run boots one VM, saves it, and checks everything else on clones. The guest runs the commands of guestinit.
func (s Suite) Run(t *testing.T) {
	saved := Save(t, s.Driver, s.VM, func(v hypervisor.VM) { Ask(t, v, "set template") })
	for _, c := range []struct {
		name  string
		check func(*testing.T, hypervisor.Driver, Saved)
	}{
		{"clones keep the saved state and do not see each other", twoClones},
		{"pause and resume are idempotent", pauseTwice},
		{"memory grows and shrinks", growMemory},
		{"a read-only disk is attached and detached", readOnlyDisk},
		{"a writable disk is written", writableDisk},
		{"a writable disk cannot be written beyond its end", shortDisk},
		{"a disk has its own size", diskSizes},
		{"wrong slots, modes and sizes are refused", wrongDisks},
		{"cards of a VM without a tap are refused", wrongCards},
		{"a VM is adopted from its stored record", adopt},
		{"kill is idempotent and final", killTwice},
		{"a guest that powers off ends without error", powerOff},
		{"a guest that panics ends with an error", panics},
		{"an impossible VM is refused", impossible},
		{"a damaged state fails and leaves nothing", damagedState},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t, s.Driver, saved) })
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	return Within(t)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func wantError(t *testing.T, got, target error) {
	t.Helper()
	if !errors.Is(got, target) {
		t.Fatalf("got error %v, want %v", got, target)
	}
}

func twoClones(t *testing.T, d hypervisor.Driver, s Saved) {
	a, b := s.Clone(t, d), s.Clone(t, d)
	want(t, Ask(t, a, "get"), "template")
	Ask(t, a, "set a")
	want(t, Ask(t, b, "get"), "template")
	Ask(t, b, "set b")
	want(t, Ask(t, a, "get"), "a")
	want(t, Ask(t, s.Clone(t, d), "get"), "template")
}

func pauseTwice(t *testing.T, d hypervisor.Driver, s Saved) {
	ctx, v := within(t), s.Clone(t, d)
	must(t, v.Pause(ctx))
	must(t, v.Pause(ctx))
	must(t, v.Resume(ctx))
	must(t, v.Resume(ctx))
	want(t, Ask(t, v, "echo on"), "on")
}

func growMemory(t *testing.T, d hypervisor.Driver, s Saved) {
	ctx, v := within(t), s.Clone(t, d)
	before := number(t, Ask(t, v, "memory"))
	for _, size := range []int{s.VM.Memory + 256, s.VM.Memory + 101, s.VM.Memory} {
		got, err := v.Grow(ctx, size)
		must(t, err)
		if got < size || got >= size+hypervisor.MemoryStep {
			t.Fatalf("the guest has %d MiB after Grow(%d)", got, size)
		}
		// The guest's kernel uses the last part a little later.
		grown, least := got-s.VM.Memory, (got-s.VM.Memory)*9/10
		more := -1
		for ctx.Err() == nil && (more < least || more > grown) {
			more = number(t, Ask(t, v, "memory")) - before
		}
		if ctx.Err() != nil {
			t.Errorf("the guest sees %d MiB more after Grow(%d)", more, size)
		}
	}
	_, err := v.Grow(ctx, s.VM.MaxMem+1)
	wantError(t, err, hypervisor.ErrInvalid)
}

// Disk creates a sparse disk that starts with content.
func Disk(t testing.TB, content string) string {
	t.Helper()
	f := create(t, filepath.Join(t.TempDir(), "disk"))
	_, err := f.WriteString(content)
	if err == nil {
		err = f.Truncate(hypervisor.SlotSize)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func open(t *testing.T, path string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func readOnlyDisk(t *testing.T, d hypervisor.Driver, s Saved) {
	ctx, v, slot := within(t), s.Clone(t, d), s.VM.Scratch
	want(t, Ask(t, v, "read %d 0 4", slot), "00000000")
	for _, content := range []string{"once", "more"} {
		disk := open(t, Disk(t, content), os.O_RDONLY)
		must(t, v.Attach(ctx, slot, disk, hypervisor.ReadOnly))
		wantError(t, v.Attach(ctx, slot, disk, hypervisor.ReadOnly), hypervisor.ErrInvalid)
		want(t, Ask(t, v, "read %d 0 4", slot), hex.EncodeToString([]byte(content)))
		if got, err := TryAsk(v, "write %d 0 62756c6b", slot); err != nil || got == "written" {
			t.Errorf("write to a read-only disk: %q, %v", got, err)
		}
		must(t, v.Detach(ctx, slot))
		must(t, v.Detach(ctx, slot))
		want(t, Ask(t, v, "read %d 0 4", slot), "00000000")
	}
}

func writableDisk(t *testing.T, d hypervisor.Driver, s Saved) {
	ctx, v := within(t), s.Clone(t, d)
	path := Disk(t, "")
	must(t, v.Attach(ctx, 0, open(t, path, os.O_RDWR), hypervisor.ReadWrite))
	const offset = 40 << 30
	want(t, Ask(t, v, "write 0 %d 62756c6b", int64(offset)), "written")
	want(t, Ask(t, v, "read 0 %d 4", int64(offset)), "62756c6b")
	must(t, v.Detach(ctx, 0))
	got := make([]byte, 4)
	_, err := open(t, path, os.O_RDONLY).ReadAt(got, offset)
	must(t, err)
	want(t, string(got), "bulk")
}

// shortDisk: a guest has its disk's size from the template, but cannot write beyond the end of the host's disk.
func shortDisk(t *testing.T, d hypervisor.Driver, s Saved) {
	ctx, v := within(t), s.Clone(t, d)
	const size = 1 << 30
	path := Disk(t, "")
	must(t, os.Truncate(path, size))
	must(t, v.Attach(ctx, 0, open(t, path, os.O_RDWR), hypervisor.ReadWrite))
	want(t, Ask(t, v, "write 0 %d 62756c6b", size-4), "written")
	for _, offset := range []int64{size, 40 << 30, hypervisor.SlotSize - 4} {
		if got, err := TryAsk(v, "write 0 %d 62756c6b", offset); err != nil || got == "written" {
			t.Errorf("write at %d: %q, %v", offset, got, err)
		}
	}
	want(t, Ask(t, v, "read 0 %d 4", size-4), "62756c6b")
	must(t, v.Detach(ctx, 0))
	info, err := os.Stat(path)
	must(t, err)
	if info.Size() != size {
		t.Errorf("the disk has %d bytes", info.Size())
	}
	must(t, v.Attach(ctx, 0, open(t, Disk(t, ""), os.O_RDWR), hypervisor.ReadWrite))
	want(t, Ask(t, v, "write 0 %d 62756c6b", int64(40<<30)), "written")
}

// diskSizes: a guest sees the size of a writable disk after Resize. It sees any disk's size when its driver binds
// again, and the slot's own size likewise after Detach.
func diskSizes(t *testing.T, d hypervisor.Driver, s Saved) {
	ctx, v := within(t), s.Clone(t, d)
	for _, size := range []int64{1 << 30, 100 << 30, 1 << 20} {
		path, length := Disk(t, ""), strconv.FormatInt(size, 10)
		must(t, os.Truncate(path, size))
		must(t, v.Attach(ctx, 0, open(t, path, os.O_RDWR), hypervisor.ReadWrite))
		must(t, v.Resize(ctx, 0, size))
		for ctx.Err() == nil && Ask(t, v, "size 0") != length {
			runtime.Gosched() // the kernel is notified a little later
		}
		want(t, Ask(t, v, "size 0"), length)
		want(t, Ask(t, v, "write 0 %d 62756c6b", size-4), "written")
		must(t, v.Detach(ctx, 0))
		slot := s.VM.Scratch
		must(t, v.Attach(ctx, slot, open(t, path, os.O_RDONLY), hypervisor.ReadOnly))
		want(t, Ask(t, v, "rebind %d", slot), "bound")
		want(t, Ask(t, v, "size %d", slot), length)
		want(t, Ask(t, v, "read %d %d 4", slot, size-4), "62756c6b")
		wantError(t, v.Resize(ctx, slot, size), hypervisor.ErrInvalid)
		must(t, v.Detach(ctx, slot))
		want(t, Ask(t, v, "rebind %d", slot), "bound")
		want(t, Ask(t, v, "size %d", slot), strconv.FormatInt(hypervisor.SlotSize, 10))
	}
	wantError(t, v.Resize(ctx, 0, 1<<30), hypervisor.ErrInvalid)
}

func wrongDisks(t *testing.T, d hypervisor.Driver, s Saved) {
	ctx, v := within(t), s.Clone(t, d)
	disk := open(t, Disk(t, ""), os.O_RDONLY)
	short := create(t, filepath.Join(t.TempDir(), "short"))
	wantError(t, v.Attach(ctx, -1, disk, hypervisor.ReadOnly), hypervisor.ErrInvalid)
	wantError(t, v.Attach(ctx, s.VM.Slots, disk, hypervisor.ReadOnly), hypervisor.ErrInvalid)
	wantError(t, v.Attach(ctx, 0, disk, hypervisor.ReadOnly), hypervisor.ErrInvalid)
	wantError(t, v.Attach(ctx, s.VM.Scratch, disk, hypervisor.ReadWrite), hypervisor.ErrInvalid)
	wantError(t, v.Attach(ctx, s.VM.Scratch, short, hypervisor.ReadOnly), hypervisor.ErrInvalid)
	wantError(t, v.Detach(ctx, s.VM.Slots), hypervisor.ErrInvalid)
	want(t, Ask(t, v, "echo fine"), "fine")
}

func wrongCards(t *testing.T, d hypervisor.Driver, s Saved) {
	v := s.Clone(t, d)
	wantError(t, v.AddCards(within(t), []*os.File{nil}), hypervisor.ErrInvalid)
	wantError(t, v.AddCards(within(t), make([]*os.File, 8)), hypervisor.ErrInvalid)
	want(t, Ask(t, v, "get"), "template")
}

func adopt(t *testing.T, d hypervisor.Driver, s Saved) {
	ctx, v := within(t), s.Clone(t, d)
	slot := s.VM.Scratch
	must(t, v.Attach(ctx, slot, open(t, Disk(t, "kept"), os.O_RDONLY), hypervisor.ReadOnly))
	Ask(t, v, "set mine")
	stored, err := json.Marshal(v.Record())
	must(t, err)
	must(t, v.Close())
	var r hypervisor.Record
	must(t, json.Unmarshal(stored, &r))
	if _, err := d.Adopt(ctx, r, hypervisor.Files{}, hypervisor.Options{Name: "another"}); err == nil || errors.Is(err, hypervisor.ErrGone) {
		t.Errorf("adopted under another name: %v", err)
	}
	w, err := d.Adopt(ctx, r, hypervisor.Files{Console: Console(t)}, hypervisor.Options{Name: cloneName})
	must(t, err)
	KillAtEnd(t, w)
	want(t, Ask(t, w, "get"), "mine")
	want(t, Ask(t, w, "read %d 0 4", slot), hex.EncodeToString([]byte("kept")))
	must(t, w.Detach(ctx, slot))
	must(t, w.Kill(ctx))
	_, err = d.Adopt(ctx, r, hypervisor.Files{}, hypervisor.Options{Name: cloneName})
	wantError(t, err, hypervisor.ErrGone)
}

func killTwice(t *testing.T, d hypervisor.Driver, s Saved) {
	ctx, v := within(t), s.Clone(t, d)
	must(t, v.Kill(ctx))
	must(t, v.Kill(ctx))
	<-v.Done()
	if v.Process().Alive() {
		t.Error("the process still runs")
	}
	if err := v.Exit(); err == nil {
		t.Error("a killed VM ended without error")
	}
	wantError(t, v.Pause(ctx), hypervisor.ErrGone)
}

func powerOff(t *testing.T, d hypervisor.Driver, s Saved) {
	v := s.Clone(t, d)
	if answer, err := TryAsk(v, "off"); err == nil {
		t.Fatalf("the guest answered %q", answer)
	}
	<-v.Done()
	must(t, v.Exit())
}

func panics(t *testing.T, d hypervisor.Driver, s Saved) {
	v := s.Clone(t, d)
	if answer, err := TryAsk(v, "panic"); err == nil {
		t.Fatalf("the guest answered %q", answer)
	}
	<-v.Done()
	var e *hypervisor.Error
	if err := v.Exit(); !errors.As(err, &e) {
		t.Fatalf("a guest that panics ended with %v", err)
	}
	if e.Console == "" {
		t.Error("the error does not carry the console")
	}
}

func impossible(t *testing.T, d hypervisor.Driver, s Saved) {
	m := s.VM
	m.VCPUs = 0
	_, err := d.Boot(within(t), m, hypervisor.Files{}, Options(t, "impossible"))
	wantError(t, err, hypervisor.ErrInvalid)
	_, err = d.Clone(within(t), s.VM, hypervisor.Files{}, Options(t, "impossible"))
	wantError(t, err, hypervisor.ErrInvalid)
	o := Options(t, "a,b=c")
	_, err = d.Boot(within(t), s.VM, hypervisor.Files{}, o)
	wantError(t, err, hypervisor.ErrInvalid)
}

func damagedState(t *testing.T, d hypervisor.Driver, s Saved) {
	state := create(t, filepath.Join(t.TempDir(), "state"))
	_, err := state.WriteString("not a saved state")
	must(t, err)
	o := Options(t, "damaged")
	_, err = d.Clone(within(t), s.VM, hypervisor.Files{Memory: s.Memory, State: state}, o)
	var e *hypervisor.Error
	if !errors.As(err, &e) {
		t.Fatalf("a damaged state gave %v", err)
	}
	left, err := os.ReadDir(o.Dir)
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	must(t, err)
	return n
}
