package procs

import (
	"context"
	"errors"
	"log"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/pss"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestMain runs the tests below a keeper.
func TestMain(m *testing.M) {
	code, err := Keep(m.Run)
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

func TestParseStat(t *testing.T) {
	got, err := parseStat(7, []byte("7 (a) b (c) Z 3 7 7 0 -1 4194560 100 0 0 0 12 30 3 4 20 0 1 0 55 0 0"))
	if err != nil {
		t.Fatal(err)
	}
	want := Process{PID: 7, Parent: 3, Name: "a) b (c", Zombie: true, Ticks: 42, Reaped: 7}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "7 (", "7 (x) S 1", "7 (x) S y 7 7 0 -1 4194560 100 0 0 0 12 30 0"} {
		if _, err := parseStat(7, []byte(bad)); err == nil {
			t.Errorf("%q is taken for a stat", bad)
		}
	}
}

func TestParseMaps(t *testing.T) {
	got, err := parseMaps(`55d0-55e0 r-xp 00000000 fe:00 123 /usr/bin/qemu-system-x86_64
Size:  64 kB
Pss:   10 kB
Pss_Dirty: 1 kB
7f00-7f10 rw-p 00000000 00:01 7    /memfd:bulkhead-template (deleted)
Pss:   200 kB
VmFlags: rd wr
7f20-7f30 rwxp 00000000 00:00 0
Pss:   3000 kB
7f40-7f50 rw-p 00000000 00:00 0    [heap]
Pss:   40000 kB
`)
	want := Weight{PSS: 43210 << 10, Guest: 200 << 10, Code: 3000 << 10}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	for _, bad := range []string{"", "Pss: x kB\n"} {
		if _, err := parseMaps(bad); err == nil {
			t.Errorf("%q is taken for maps", bad)
		}
	}
	own, err := Weigh(os.Getpid())
	if rollup, _ := pss.Of(os.Getpid()); err != nil || own.PSS < rollup/2 || own.PSS > rollup*2 {
		t.Errorf("%+v beside %d: %v", own, rollup, err)
	}
}

// TestOrphans orphans a grandchild. It expects to see and weigh it, and the keeper to reap it.
func TestOrphans(t *testing.T) {
	if Root() != os.Getppid() {
		t.Fatalf("the keeper is %d and the parent %d", Root(), os.Getppid())
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
	cmd.Env = append(os.Environ(), "MARK=here")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	all, err := Below(Root())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, func(p Process) bool { return p.PID == pid }) {
		t.Fatalf("the orphan %d is not among %v", pid, all)
	}
	if got := Getenv(pid, "MARK"); got != "here" {
		t.Errorf("its environment says %q", got)
	}
	if n, err := pss.Of(pid); err != nil || n < 4096 {
		t.Errorf("it weighs %d: %v", n, err)
	}
	ctx := testdeadline.Context(t, 30*time.Second)
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
		if _, err := Get(pid); err != nil {
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

func TestOthers(t *testing.T) {
	if got, err := parseBusy("cpu  1 2 4 8 16 32 64 128 256 512\ncpu0 1"); err != nil || got != 1+2+4+32+64 {
		t.Errorf("%d, %v", got, err)
	}
	for _, bad := range []string{"", "cpu 1 2", "cpu a b c d e f g"} {
		if _, err := parseBusy(bad); err == nil {
			t.Errorf("%q is taken for a stat", bad)
		}
	}
	before, err := Others()
	if err != nil || before <= 0 {
		t.Fatalf("%d, %v", before, err)
	}
	// Our own work must not count as others'.
	began := time.Now()
	if err := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done").Run(); err != nil {
		t.Fatal(err)
	}
	after, err := Others()
	limit := time.Since(began).Seconds() * TicksPerSecond * float64(runtime.NumCPU())
	if grown := after - before; err != nil || grown < -5 || float64(grown) > limit {
		t.Errorf("others used %d ticks of %.0f: %v", grown, limit, err)
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

func TestHasThread(t *testing.T) {
	all, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if name := strings.TrimSpace(string(all)); !HasThread(os.Getpid(), name) || HasThread(os.Getpid(), name+"x") || HasThread(-1, name) {
		t.Errorf("threads of %q", name)
	}
}
