package logs

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

type place struct {
	t           *testing.T
	log, record string
}

func newPlace(t *testing.T) place {
	dir := t.TempDir()
	return place{t, filepath.Join(dir, "c.log"), filepath.Join(dir, "record")}
}

func (p place) file() *os.File {
	p.t.Helper()
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

func (p place) open() *Writer {
	p.t.Helper()
	w, err := Open(p.record, p.file(), 0)
	if err != nil {
		p.t.Fatal(err)
	}
	w.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 60000, time.FixedZone("x", 3600)) }
	return w
}

func (p place) lines() []string {
	p.t.Helper()
	data, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

const stamp = "2026-01-02T02:04:05.000060000Z"

func TestFormat(t *testing.T) {
	long := strings.Repeat("x", MaxLine)
	for _, tt := range []struct {
		name   string
		writes []string
		end    bool
		want   []string
		acked  int64
	}{
		{"line", []string{"hello\n"}, false, []string{"F hello"}, 6},
		{"lines at once", []string{"a\nb\n\nc\n"}, false, []string{"F a", "F b", "F ", "F c"}, 7},
		{"line in pieces", []string{"he", "llo", "\n"}, false, []string{"F hello"}, 6},
		{"kept back", []string{"a\nprompt> "}, false, []string{"F a"}, 2},
		{"last line without an end", []string{"a\nb"}, true, []string{"F a", "P b"}, 3},
		{"as long as may be", []string{long + "\n"}, false, []string{"F " + long}, MaxLine + 1},
		{"one too long", []string{long + "y\n"}, false, []string{"P " + long, "F y"}, MaxLine + 2},
		{"three parts", []string{long + long + "y\n"}, false, []string{"P " + long, "P " + long, "F y"}, 2*MaxLine + 2},
		{"long without an end", []string{long + "y"}, true, []string{"P " + long, "P y"}, MaxLine + 1},
		{"carriage returns and bytes", []string{"a\r\n\x00\xff\n"}, false, []string{"F a\r", "F \x00\xff"}, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			w := p.open()
			var offset, acked int64
			for _, data := range tt.writes {
				var err error
				if acked, err = w.Write(Stdout, offset, []byte(data)); err != nil {
					t.Fatal(err)
				}
				offset += int64(len(data))
			}
			if tt.end {
				var err error
				if acked, err = w.End(Stdout); err != nil {
					t.Fatal(err)
				}
			}
			var want []string
			for _, line := range tt.want {
				want = append(want, stamp+" stdout "+line)
			}
			if diff := cmp.Diff(want, p.lines()); diff != "" {
				t.Error(diff)
			}
			if acked != tt.acked {
				t.Errorf("acknowledged %d, not %d", acked, tt.acked)
			}
			w.Close()
		})
	}
}

// kubeletLine is the format that the kubelet parses.
var kubeletLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(Z|[+-]\d\d:\d\d) (stdout|stderr) [PF] `)

// TestExactlyOnceAcrossKills: a killed writer and its successor log everything once, whatever the chunks and the moment
// of the kill.
func TestExactlyOnceAcrossKills(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var text [streams]string
		for s := range text {
			for i := range 40 {
				text[s] += fmt.Sprintf("%v line %d %s\n", Stream(s), i, strings.Repeat("z", rnd.IntN(300)))
				if rnd.IntN(10) == 0 {
					text[s] += strings.Repeat("w", MaxLine+rnd.IntN(100)) + "\n"
				}
			}
		}
		p := newPlace(t)
		w := p.open()
		var at [streams]int64
		for at[0] < int64(len(text[0])) || at[1] < int64(len(text[1])) {
			s := Stream(rnd.IntN(int(streams)))
			n := min(int64(rnd.IntN(20000)), int64(len(text[s]))-at[s])
			if _, err := w.Write(s, at[s], []byte(text[s][at[s]:at[s]+n])); err != nil {
				t.Fatal(err)
			}
			at[s] += n
			if rnd.IntN(4) > 0 {
				continue
			}
			w.Close() // as a kill leaves it
			if rnd.IntN(2) == 0 {
				// Killed between the write and its record.
				f := p.file()
				f.WriteString(stamp + " stdout F not yet reco")
				f.Close()
			}
			w = p.open()
			at = [streams]int64{w.Offset(Stdout), w.Offset(Stderr)}
		}
		for s := range streams {
			if end, err := w.End(s); err != nil || end != int64(len(text[s])) {
				t.Fatalf("seed %d: %v ends at %d of %d: %v", seed, s, end, len(text[s]), err)
			}
		}
		w.Close()
		var got [streams]strings.Builder
		for _, line := range p.lines() {
			if !kubeletLine.MatchString(line) {
				t.Fatalf("seed %d: line %q", seed, line)
			}
			rest := line[strings.IndexByte(line, ' ')+1:]
			s := Stdout
			if strings.HasPrefix(rest, "stderr") {
				s = Stderr
			}
			got[s].WriteString(rest[9:])
			if rest[7] == 'F' {
				got[s].WriteByte('\n')
			}
		}
		for s := range got {
			if diff := cmp.Diff(text[s], got[s].String()); diff != "" {
				t.Fatalf("seed %d, %v: %s", seed, Stream(s), diff)
			}
		}
	}
}

func TestRepeatsAndGaps(t *testing.T) {
	p := newPlace(t)
	w := p.open()
	defer w.Close()
	write := func(offset int64, data string) (int64, error) { return w.Write(Stdout, offset, []byte(data)) }
	write(0, "one\ntw")
	if acked, err := write(0, "one\n"); acked != 4 || err != nil {
		t.Errorf("a repetition: %d, %v", acked, err)
	}
	if acked, err := write(4, "two\n"); acked != 8 || err != nil {
		t.Errorf("an overlap: %d, %v", acked, err)
	}
	for _, offset := range []int64{9, math.MaxInt64, -1, math.MinInt64} {
		if acked, err := write(offset, "x\n"); !errors.Is(err, ErrGap) || acked != 8 {
			t.Errorf("offset %d: %d, %v", offset, acked, err)
		}
	}
	if diff := cmp.Diff([]string{stamp + " stdout F one", stamp + " stdout F two"}, p.lines()); diff != "" {
		t.Error(diff)
	}
}

// TestFullDisk: a full disk loses nothing. The write fails as a whole and can be repeated. The error also mentions a
// log that could not be truncated, like /dev/full.
func TestFullDisk(t *testing.T) {
	p := newPlace(t)
	w := p.open()
	defer w.Close()
	if _, err := w.Write(Stdout, 0, []byte("before\n")); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no /dev/full: %v", err)
	}
	defer full.Close()
	kept := w.log
	w.log = full
	acked, err := w.Write(Stdout, 7, []byte("after\nand more"))
	if !errors.Is(err, unix.ENOSPC) || !errors.Is(err, unix.EINVAL) || acked != 7 {
		t.Errorf("full disk: %d, %v", acked, err)
	}
	w.log = kept
	if acked, err := w.Write(Stdout, 7, []byte("after\nand more")); err != nil || acked != 13 {
		t.Errorf("again: %d, %v", acked, err)
	}
	if diff := cmp.Diff([]string{stamp + " stdout F before", stamp + " stdout F after"}, p.lines()); diff != "" {
		t.Error(diff)
	}
}

func TestRotation(t *testing.T) {
	p := newPlace(t)
	w := p.open()
	w.Write(Stdout, 0, []byte("old\nhal"))
	if err := os.Rename(p.log, p.log+".1"); err != nil {
		t.Fatal(err)
	}
	if err := w.Reopen(p.file()); err != nil {
		t.Fatal(err)
	}
	w.Write(Stdout, 7, []byte("f\n"))
	w.Close()
	w = p.open() // the record now describes the new file
	if w.Offset(Stdout) != 9 {
		t.Errorf("offset %d", w.Offset(Stdout))
	}
	w.Close()
	if diff := cmp.Diff([]string{stamp + " stdout F half"}, p.lines()); diff != "" {
		t.Error(diff)
	}
	if _, err := w.Write(Stdout, 9, []byte("x\n")); !errors.Is(err, ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
	if err := w.Reopen(p.file()); !errors.Is(err, ErrClosed) {
		t.Errorf("reopen after close: %v", err)
	}
}

// TestRotatedWhileDown: a log that was rotated while no shim ran is not truncated.
func TestRotatedWhileDown(t *testing.T) {
	p := newPlace(t)
	w := p.open()
	w.Write(Stdout, 0, []byte("old\n"))
	w.Close()
	os.Rename(p.log, p.log+".1")
	if err := os.WriteFile(p.log, []byte("of somebody else's, and longer than the record says\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w = p.open()
	w.Write(Stdout, 4, []byte("new\n"))
	w.Close()
	if got := p.lines(); len(got) != 2 || !strings.HasSuffix(got[1], "stdout F new") {
		t.Errorf("log %q", got)
	}
}

func TestDamagedRecord(t *testing.T) {
	p := newPlace(t)
	w := p.open()
	w.Write(Stdout, 0, []byte("one\n"))
	w.Write(Stdout, 4, []byte("two\n"))
	w.Close()
	data, err := os.ReadFile(p.record)
	if err != nil {
		t.Fatal(err)
	}
	// If the newer record is damaged, the older one counts.
	newer := int(w.rec.seq%2) * recordSize
	one := append([]byte(nil), data...)
	one[newer+20] ^= 1
	os.WriteFile(p.record, one, 0o600)
	w = p.open()
	if w.Offset(Stdout) != 4 {
		t.Errorf("offset %d from the older record", w.Offset(Stdout))
	}
	w.Close()
	for name, bad := range map[string][]byte{
		"empty": {}, "half": data[:recordSize/2], "zeros": make([]byte, 2*recordSize),
	} {
		os.WriteFile(p.record, bad, 0o600)
		if _, err := Open(p.record, p.file(), 0); !errors.Is(err, atomicfile.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzWrite(f *testing.F) {
	f.Add([]byte("a\nb"), int64(0), []byte("c\n"), int64(3))
	f.Fuzz(func(t *testing.T, a []byte, at int64, b []byte, bt int64) {
		p := newPlace(t)
		w := p.open()
		defer w.Close()
		w.Write(Stdout, at, a)
		w.Write(Stdout, bt, b)
		if n := len(w.pending[Stdout]); n > MaxLine {
			t.Errorf("%d bytes are kept back", n)
		}
	})
}

// TestFirstLog: a writer without a log refuses output until it gets one.
func TestFirstLog(t *testing.T) {
	p := newPlace(t)
	w, err := Open(p.record, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Write(Stdout, 0, []byte("x\n")); !errors.Is(err, ErrNoLog) {
		t.Errorf("written to no log: %v", err)
	}
	if err := w.Reopen(p.file()); err != nil {
		t.Errorf("the first log: %v", err)
	}
	if at, err := w.Write(Stdout, 0, []byte("x\n")); at != 2 || err != nil {
		t.Errorf("at %d: %v", at, err)
	}
}

// TestLimit: a log at its limit accepts and loses nothing, and continues after its rotation.
func TestLimit(t *testing.T) {
	const limit = 3000
	p := newPlace(t)
	w, err := Open(p.record, p.file(), limit)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	output := []byte(strings.Repeat("\n", 500)) // each byte becomes a line of 43 bytes
	var logged []string
	anew := 0
	for at := int64(0); at < int64(len(output)); {
		if anew > 50 {
			t.Fatalf("rotated %d times, and %d bytes are logged", anew, at)
		}
		another := w.Another()
		at, err = w.Write(Stdout, at, output[at:min(at+10, int64(len(output)))])
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		if info, err := os.Stat(p.log); err != nil || info.Size() > limit || info.Size() < limit-500 {
			t.Fatalf("full at %d bytes: %v", info.Size(), err)
		}
		select {
		case <-another:
			t.Fatal("Another reports a rotation before Reopen")
		default:
		}
		logged = append(logged, p.lines()...)
		if err := os.Rename(p.log, p.log+".1"); err != nil {
			t.Fatal(err)
		}
		if err := w.Reopen(p.file()); err != nil {
			t.Fatal(err)
		}
		<-another
		anew++
	}
	if logged = append(logged, p.lines()...); len(logged) != len(output) || anew < 5 {
		t.Errorf("%d lines of %d, rotated %d times", len(logged), len(output), anew)
	}
}

// TestLimitToTheByte: a log can grow exactly to its limit.
func TestLimitToTheByte(t *testing.T) {
	line := int64(len(stamp + " stdout F x\n"))
	for limit, want := range map[int64]error{2*line - 1: ErrFull, 2 * line: nil} {
		p := newPlace(t)
		w, err := Open(p.record, p.file(), limit)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if _, err := w.Write(Stdout, 0, []byte("x\n")); err != nil {
			t.Error(err)
		}
		if _, err := w.Write(Stdout, 2, []byte("x\n")); !errors.Is(err, want) {
			t.Errorf("limit %d: %v, want %v", limit, err, want)
		}
	}
}

// TestLimitLeavesRoomForALine: an empty log always has room for one line, so that a container cannot get stuck.
func TestLimitLeavesRoomForALine(t *testing.T) {
	p := newPlace(t)
	w, err := Open(p.record, p.file(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := w.Write(Stdout, 0, []byte("more than ten bytes\n")); err != nil || at != 20 {
		t.Errorf("at %d: %v", at, err)
	}
	if at, err := w.Write(Stdout, 20, []byte("and one more\n")); !errors.Is(err, ErrFull) || at != 20 {
		t.Errorf("at %d: %v", at, err)
	}
	another := w.Another()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	<-another
}
