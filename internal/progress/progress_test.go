package progress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/memfd"
)

// create returns new files.
func create(t *testing.T) *Set {
	t.Helper()
	s, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// duplicate returns further descriptors of the files, for another process.
func (s *Set) duplicate(t *testing.T) *Set {
	t.Helper()
	again, err := s.Duplicate()
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// open opens the files like the next process.
func (s *Set) open(t *testing.T) *Record {
	t.Helper()
	r, err := Open(s.duplicate(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// pipe returns a pipe's ends as descriptors.
func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

// readAll reads the bytes that are there.
func readAll(t *testing.T, fd int) []byte {
	t.Helper()
	var all []byte
	for b := make([]byte, 1<<16); ; {
		n, err := unix.Read(fd, b)
		if n > 0 {
			all = append(all, b[:n]...)
			continue
		}
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		return all
	}
}

// killed is the panic of a killed process.
type killed struct{}

// TestOutputAfterKills kills the process after each step of passing on an output, and in the middle of them. The next
// one neither loses nor repeats a byte.
func TestOutputAfterKills(t *testing.T) {
	text := []byte(strings.Repeat("0123456789abcdef", 40))
	for kill := range 40 {
		s := create(t)
		r, w := pipe(t)
		var got []byte
		step := 0
		for done := false; !done; {
			func() { // one process
				defer func() {
					if e := recover(); e != nil && e != (killed{}) {
						panic(e)
					}
				}()
				must := func(err error) {
					if err != nil && !errors.Is(err, unix.EAGAIN) {
						t.Fatalf("kill at step %d: %v", kill, err)
					}
					if step++; step == kill {
						panic(killed{})
					}
				}
				o := s.open(t).Output(Stdout)
				must(nil)
				for o.Offset() < int64(len(text)) {
					rest := text[o.Offset():min(int64(len(text)), o.Offset()+100)]
					if o.Staged() == 0 {
						if step+1 == kill { // between the bytes and their number
							step++
							must(control(o.in(), func(fd int) { _, _ = unix.Write(fd, rest) }))
							panic(killed{})
						}
						_, err := o.Stage(rest)
						must(err)
					}
					_, err := o.Pass(w, 60)
					must(err)
					got = append(got, readAll(t, r)...)
				}
				done = true
			}()
		}
		if got = append(got, readAll(t, r)...); !bytes.Equal(got, text) {
			t.Errorf("killed at step %d: %d bytes of %d: %q", kill, len(got), len(text), got)
		}
	}
}

// TestPassWithoutRoom: bytes without room stay in the stage.
func TestPassWithoutRoom(t *testing.T) {
	s := create(t)
	o := s.open(t).Output(Stderr)
	r, w := pipe(t)
	total := 0
	for {
		if o.Staged() == 0 {
			n, err := o.Stage(make([]byte, 20000))
			if n == 0 || err != nil {
				t.Fatalf("Stage: got %d, %v", n, err)
			}
		}
		n, err := o.Pass(w, 1<<20)
		if total += n; errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.Stage([]byte("x")); !errors.Is(err, errInvalid) {
		t.Errorf("Stage of a stage in use: got %v", err)
	}
	next := s.open(t).Output(Stderr)
	if next.Offset() != int64(total) || next.Staged() != o.Staged() || total == 0 {
		t.Errorf("the next process is at %d with %d, want %d with %d", next.Offset(), next.Staged(), total, o.Staged())
	}
	if n := len(readAll(t, r)); n != total {
		t.Errorf("the pipe has %d bytes, want %d", n, total)
	}
}

// TestPassFails: a file without a reader, and one that splice does not support.
func TestPassFails(t *testing.T) {
	s := create(t)
	o := s.open(t).Output(Stdout)
	if _, err := o.Stage([]byte("text")); err != nil {
		t.Fatal(err)
	}
	r, w := pipe(t)
	unix.Close(r)
	if _, err := o.Pass(w, 10); !errors.Is(err, unix.EPIPE) {
		t.Errorf("Pass without a reader: got %v", err)
	}
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := o.Pass(int(f.Fd()), 10); !errors.Is(err, ErrNoSplice) {
		t.Errorf("Pass to a file for appending: got %v", err)
	}
	if err := errors.Join(o.Unstage(), o.Advance(3)); err != nil {
		t.Fatal(err)
	}
	next := s.open(t).Output(Stdout)
	if next.Offset() != 3 || next.Staged() != 0 {
		t.Errorf("the next process is at %d with %d", next.Offset(), next.Staged())
	}
	if err := next.Reset(77); err != nil || s.open(t).Output(Stdout).Offset() != 77 {
		t.Errorf("Reset: %v", err)
	}
}

// noRead fails if Fill does not use splice.
func noRead(t *testing.T) func([]byte) (int, error) {
	return func([]byte) (int, error) {
		t.Error("splice was not used")
		return 0, io.ErrUnexpectedEOF
	}
}

// TestInputAfterKills kills the process after each step of reading an input.
func TestInputAfterKills(t *testing.T) {
	for name, kill := range map[string]func(t *testing.T, i *Input, from int){
		"before the number": func(t *testing.T, i *Input, from int) {
			_ = control(i.in(), func(fd int) { _, _ = splice(from, nil, fd, nil, 500) })
		},
		"after the number": func(t *testing.T, i *Input, from int) {
			n := 0
			_ = control(i.in(), func(fd int) { n, _ = splice(from, nil, fd, nil, 500) })
			_ = i.store(i.offset, int64(n))
		},
		"in the middle": func(t *testing.T, i *Input, from int) {
			n := 0
			_ = control(i.in(), func(fd int) { n, _ = splice(from, nil, fd, nil, 500) })
			_ = i.store(i.offset, int64(n))
			place := ringOffset + i.offset%Ring
			_ = control(i.out(), func(fd int) { _, _ = splice(fd, nil, int(i.set[0].Fd()), &place, min(n, 200, int(Ring-i.offset%Ring))) })
		},
		"at the end": func(t *testing.T, i *Input, from int) {
			if _, err := i.Fill(from, make([]byte, 500), noRead(t)); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		},
	} {
		s := create(t)
		r, w := pipe(t)
		var want []byte
		for round := range 400 { // several times around the ring
			piece := []byte(fmt.Sprintf("%d %s\n", round, strings.Repeat("x", round)))
			want = append(want, piece...)
			if _, err := unix.Write(w, piece); err != nil {
				t.Fatal(err)
			}
			kill(t, s.open(t).Input(), r)
		}
		i := s.open(t).Input()
		for {
			_, err := i.Fill(r, make([]byte, 5000), noRead(t))
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		last, err := i.Last()
		if i.Offset() != int64(len(want)) || err != nil || !bytes.HasSuffix(want, last) || len(last) != min(Ring, len(want)) {
			t.Errorf("killed %s: at %d of %d with the last %d bytes, %v", name, i.Offset(), len(want), len(last), err)
		}
	}
}

func TestFill(t *testing.T) {
	s := create(t)
	i := s.open(t).Input()
	r, w := pipe(t)
	b := make([]byte, 100)
	if _, err := i.Fill(r, b, noRead(t)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("Fill without bytes: got %v", err)
	}
	if _, err := unix.Write(w, bytes.Repeat([]byte("0123456789"), 12)); err != nil {
		t.Fatal(err)
	}
	unix.Close(w)
	if n, err := i.Fill(r, b, noRead(t)); n != 100 || string(b[90:]) != "0123456789" || err != nil {
		t.Errorf("Fill: got %d, %q, %v", n, b[90:], err)
	}
	if n, err := i.Fill(r, b, noRead(t)); n != 20 || err != nil {
		t.Errorf("Fill: got %d, %v", n, err)
	}
	if n, err := i.Fill(r, b, noRead(t)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("Fill at the end: got %d, %v", n, err)
	}
	// A directory does not support splice.
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	n, err := i.Fill(int(dir.Fd()), b, func(p []byte) (int, error) { return copy(p, "plain"), nil })
	if n != 5 || err != nil {
		t.Errorf("Fill without splice: got %d, %v", n, err)
	}
	next := s.open(t).Input()
	last, err := next.Last()
	if next.Offset() != 125 || !bytes.HasSuffix(last, []byte("89plain")) || err != nil {
		t.Errorf("the next process is at %d with %q, %v", next.Offset(), last, err)
	}
	if err := next.Reset(500); err != nil || s.open(t).Input().Offset() != 500 {
		t.Errorf("Reset: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	plain, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.Truncate(memorySize); err != nil {
		t.Fatal(err)
	}
	unsealed, err := memfd.Create("unsealed")
	if err != nil {
		t.Fatal(err)
	}
	short, err := memfd.Create("short")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unsealed.Truncate(memorySize), memfd.Seal(short, memfd.Fixed)); err != nil {
		t.Fatal(err)
	}
	readOnly, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", create(t)[0].Fd()))
	if err != nil {
		t.Fatal(err)
	}
	blocking, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	blocking.Fd() // makes it blocking
	for name, edit := range map[string]func(s *Set){
		"a file":                        func(s *Set) { s[0] = plain },
		"memory that can shrink":        func(s *Set) { s[0] = unsealed },
		"memory that is too short":      func(s *Set) { s[0] = short },
		"memory that cannot be written": func(s *Set) { s[0] = readOnly },
		"no stage":                      func(s *Set) { s[3] = nil },
		"a stage that blocks":           func(s *Set) { s[3] = blocking },
		"a stage the wrong way round":   func(s *Set) { s[3], s[4] = s[4], s[3] },
		"memory as a stage":             func(s *Set) { s[5] = s[0] },
		"too many bytes in a stage": func(s *Set) {
			r, err := Open(s.duplicate(t))
			if err == nil {
				_, err = r.stdout.Stage([]byte("text"))
			}
			if err == nil {
				err = r.stdout.store(0, 3)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		s := create(t).duplicate(t)
		edit(s)
		if _, err := Open(s); !errors.Is(err, errInvalid) {
			t.Errorf("Open with %s: got %v, want errInvalid", name, err)
		}
		for _, f := range s {
			if f != nil && !errors.Is(f.Close(), os.ErrClosed) {
				t.Errorf("Open with %s left a file open", name)
			}
		}
	}
}

func TestOpenNothing(t *testing.T) {
	if _, err := Open(nil); !errors.Is(err, errInvalid) {
		t.Errorf("Open of nothing: got %v", err)
	}
}

// TestChangedStage: bytes that another process adds or takes end the stream, and do not make it wait for ever.
func TestChangedStage(t *testing.T) {
	s := create(t)
	r, w := pipe(t)
	o := s.open(t).Output(Stdout)
	if _, err := o.Stage([]byte("text")); err != nil {
		t.Fatal(err)
	}
	if err := s.open(t).Output(Stdout).drop(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Pass(w, 10); !errors.Is(err, errInvalid) {
		t.Errorf("Pass: got %v", err)
	}
	i := s.open(t).Input()
	if _, err := i.in().Write([]byte("text")); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Fill(r, make([]byte, 10), noRead(t)); !errors.Is(err, errInvalid) {
		t.Errorf("Fill: got %v", err)
	}
}

// TestHostileNumbers: no number is negative, whatever a writer has stored.
func TestHostileNumbers(t *testing.T) {
	s := create(t)
	if _, err := s[0].WriteAt(bytes.Repeat([]byte{0xff}, 48), 0); err != nil {
		t.Fatal(err)
	}
	r := s.open(t)
	last, err := r.Input().Last()
	if r.Output(Stdout).Offset() < 0 || r.Input().Offset() < 0 || len(last) != Ring || err != nil {
		t.Errorf("offsets %d, %d, %d bytes, %v", r.Output(Stdout).Offset(), r.Input().Offset(), len(last), err)
	}
}
