package procs

import (
	"context"
	"errors"
	"log"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestMain runs the tests below a keeper.
func TestMain(m *testing.M) {
	kept, code, err := Keep()
	if err != nil {
		log.Fatal(err)
	}
	if kept {
		code = m.Run()
	}
	os.Exit(code)
}

func TestParseStat(t *testing.T) {
	got, err := parseStat(7, []byte("7 (a) b (c) Z 3 7 7 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 1 0 55 0 0"))
	if err != nil {
		t.Fatal(err)
	}
	want := Process{PID: 7, Parent: 3, Name: "a) b (c", Zombie: true, Ticks: 42}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "7 (", "7 (x) S 1", "7 (x) S y 7 7 0 -1 4194560 100 0 0 0 12 30 0"} {
		if _, err := parseStat(7, []byte(bad)); err == nil {
			t.Errorf("%q is taken for a stat", bad)
		}
	}
}

func TestParsePSS(t *testing.T) {
	got, err := parsePSS("00400000-7fff ---p 00000000 00:00 0 [rollup]\nRss:  99 kB\nPss:    12 kB\nPss_Dirty: 3 kB\n")
	if err != nil || got != 12<<10 {
		t.Errorf("%d, %v", got, err)
	}
	for _, bad := range []string{"", "Pss: 12 MB\n", "Pss: x kB\n"} {
		if _, err := parsePSS(bad); err == nil {
			t.Errorf("%q is taken for a rollup", bad)
		}
	}
}

// TestOrphans loses a grandchild and expects to see and weigh it, and the keeper to reap it.
func TestOrphans(t *testing.T) {
	if Root() != os.Getppid() {
		t.Fatalf("the keeper is %d and the parent %d", Root(), os.Getppid())
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 60 >/dev/null & echo $!")
	cmd.Env = append(os.Environ(), "MARK=here")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	all, err := Below(Root())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(p Process) bool { return slices.Equal(Args(p.PID), []string{"sleep", "60"}) })
	if i < 0 {
		t.Fatalf("the orphan is not among %v", all)
	}
	pid := all[i].PID
	if got := Getenv(pid, "MARK"); got != "here" {
		t.Errorf("its environment says %q", got)
	}
	if n, err := PSS(pid); err != nil || n < 4096 {
		t.Errorf("it weighs %d: %v", n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := Rest(ctx, func([]Process) error { return nil }); err != nil {
		t.Error(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := Look(pid); err != nil {
			return
		}
		if err := Wait(ctx, time.Millisecond); err != nil {
			t.Fatal("it was not reaped")
		}
	}
}

func TestNoRest(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Rest(ctx, func([]Process) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("rest before its time: %v", err)
	}
}

func TestHeldMemory(t *testing.T) {
	before, err := HeldMemory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("test", 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 8192), 1<<20); err != nil {
		t.Fatal(err)
	}
	after, err := HeldMemory(os.Getpid())
	if err != nil || after-before != 8192 {
		t.Errorf("%d bytes more: %v", after-before, err)
	}
}
