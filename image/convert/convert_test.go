package convert

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// program replaces the process by a shell script.
func program(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, Program), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BULKHEAD_LIBEXEC", dir)
}

// reply returns a script that prints a message with a chosen length.
func reply(length int, text string) string {
	head := binary.BigEndian.AppendUint32(nil, uint32(length))
	return fmt.Sprintf("printf '\\%03o\\%03o\\%03o\\%03o'; printf '%%s' '%s'\n", head[0], head[1], head[2], head[3], text)
}

func message(text string) string { return reply(len(text), text) }

// content is a layer that can be closed while it is read.
type content struct {
	io.Reader
	closed chan struct{}
}

func (c *content) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return nil
}

// silent provides no data until it is closed.
func silent() *content {
	closed := make(chan struct{})
	return &content{readerFunc(func([]byte) (int, error) { <-closed; return 0, errors.New("closed") }), closed}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func given(r io.Reader) *content { return &content{r, make(chan struct{})} }

// files returns two empty files.
func files(t *testing.T) (a, b *os.File) {
	t.Helper()
	for _, f := range []**os.File{&a, &b} {
		var err error
		if *f, err = os.CreateTemp(t.TempDir(), ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*f).Close() })
	}
	return a, b
}

// TestHostileProcess: any output or behaviour of the process becomes an error of one line, even if its layers are
// silent or larger than what it reads.
func TestHostileProcess(t *testing.T) {
	endless := func() *content { return given(readerFunc(func(p []byte) (int, error) { return len(p), nil })) }
	for _, tc := range []struct {
		what, script string
		says         string
	}{
		{what: "ends", script: "exit 0", says: "EOF"},
		{what: "fails", script: "echo some reason >&2; echo and more >&2; exit 3", says: "exit status 3: some reason"},
		{what: "dies", script: "kill -KILL $$", says: "killed"},
		{what: "half a length", script: "printf '\\000\\000'", says: "EOF"},
		{what: "half a message", script: reply(100, "{}"), says: "EOF"},
		{what: "a message of 4 GiB", script: reply(-1, "{}"), says: "not a message"},
		{what: "no JSON", script: message("nonsense"), says: "not a message"},
		{what: "a disk too soon", script: message(`{"size":4096}`), says: "before it had read"},
		{what: "a fault of many lines", script: message(`{"fault":{"kind":"host","text":"a\nb\u001b[31m"}}`), says: "a b [31m"},
		{what: "a long fault", script: message(`{"fault":{"text":"` + strings.Repeat("x", 5000) + `"}}`), says: "xxx"},
		{what: "a crash without end", script: "yes no | head -c 10000000 >&2; exit 1", says: "no"},
	} {
		for name, layer := range map[string]func() *content{"silent": silent, "endless": endless} {
			program(t, tc.script)
			disk, _ := files(t)
			l := layer()
			_, err := Disk(t.Context(), nil, disk, 1000000, []Layer{{Content: l}})
			if err == nil || !strings.Contains(err.Error(), tc.says) || len(err.Error()) > 2*maxText || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%s, %s layer: %.300v", tc.what, name, err)
			}
			select {
			case <-l.closed:
			default:
				t.Errorf("%s, %s layer: it is not closed", tc.what, name)
			}
		}
	}
}

// TestSizes: a disk is not empty, and not larger than its limit.
func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		size  int64
		taken bool
	}{{-4096, false}, {0, false}, {1, true}, {1000000, true}, {1000001, false}} {
		program(t, "cat >/dev/null\n"+message(fmt.Sprintf(`{"size":%d}`, tc.size)))
		disk, _ := files(t)
		got, err := Disk(t.Context(), nil, disk, 1000000, []Layer{{Content: given(strings.NewReader("layer"))}})
		if tc.taken && (err != nil || got != tc.size) || !tc.taken && !errors.Is(err, errMessage) {
			t.Errorf("a disk of %d bytes: %d, %v", tc.size, got, err)
		}
	}
}

// TestProcessThatHangs: the process ends with its caller, with its children, even if other processes hold its pipes.
func TestProcessThatHangs(t *testing.T) {
	for what, script := range map[string]string{
		"reads nothing":  "exec sleep 30",
		"reads all":      "cat >/dev/null; exec sleep 30",
		"holds the pipe": "trap '' TERM; sleep 30 & sleep 30",
	} {
		program(t, script)
		disk, _ := files(t)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		start := time.Now()
		_, err := Disk(ctx, nil, disk, 1<<20, []Layer{{Content: silent()}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v", what, err)
		}
		if took := time.Since(start); took > 60*time.Second {
			t.Errorf("%s: ended after %v", what, took)
		}
		cancel()
	}
}

// TestProcessThatStays: a process that has answered is not waited for.
func TestProcessThatStays(t *testing.T) {
	program(t, message(`{"members":[{"name":"a"}]}`)+"exec sleep 30")
	archive, spare := files(t)
	members, _, err := Index(t.Context(), nil, archive, spare, 1<<20)
	if err != nil || len(members) != 1 {
		t.Errorf("got %v, %v", members, err)
	}
	program(t, "exec sleep 30 >&-")
	if _, _, err := Index(t.Context(), nil, archive, spare, 1<<20); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("one that says nothing: %v", err)
	}
}

// TestSourceFails: an error of a layer is returned unchanged, and not its consequences.
func TestSourceFails(t *testing.T) {
	program(t, "cat >/dev/null")
	disk, _ := files(t)
	broken := errors.New("the registry is gone")
	layers := []Layer{
		{Content: given(strings.NewReader("first"))},
		{Content: given(readerFunc(func([]byte) (int, error) { return 0, broken }))},
	}
	if _, err := Disk(t.Context(), nil, disk, 1<<20, layers); !errors.Is(err, broken) || err.Error() != broken.Error() {
		t.Errorf("got %v", err)
	}
}

func TestIndexHostile(t *testing.T) {
	for what, text := range map[string]string{
		"before its beginning": `{"members":[{"name":"a","offset":-1,"size":1}]}`,
		"less than nothing":    `{"members":[{"name":"a","offset":1,"size":-1}]}`,
	} {
		program(t, message(text))
		archive, spare := files(t)
		if _, _, err := Index(t.Context(), nil, archive, spare, 1<<20); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// TestExportReaderGone: the process ends if the reader of the layer goes away.
func TestExportReaderGone(t *testing.T) {
	program(t, "cat >/dev/null; yes >&4 && exit 0; exit 7")
	disk, _ := files(t)
	gone := errors.New("gone")
	err := Export(t.Context(), nil, disk, writerFunc(func([]byte) (int, error) { return 0, gone }))
	if !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestNotInstalled(t *testing.T) {
	t.Setenv("BULKHEAD_LIBEXEC", t.TempDir())
	disk, _ := files(t)
	l := silent()
	if _, err := Disk(t.Context(), nil, disk, 1, []Layer{{Content: l}}); !errors.Is(err, dirs.ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
	<-l.closed
}

// TestWire: a message is read as it was sent, layer by layer, and the end of a layer is distinguished from a
// truncation.
func TestWire(t *testing.T) {
	var stream bytes.Buffer
	c := call{request: Request{Task: ToDisk, Limit: 7}}
	texts := []string{strings.Repeat("long ", 200000), "", "short"}
	for _, text := range texts {
		c.layers = append(c.layers, Layer{Content: given(strings.NewReader(text))})
	}
	if err := c.feed(&stream); err != nil {
		t.Fatal(err)
	}
	whole := stream.Bytes()
	in := bytes.NewReader(whole)
	if req, err := ReadRequest(in); err != nil || req.Limit != 7 || req.Task != ToDisk {
		t.Errorf("request %+v, %v", req, err)
	}
	for i, text := range texts {
		got, err := io.ReadAll(NewLayerReader(in))
		if err != nil || string(got) != text {
			t.Errorf("layer %d: %d bytes, %v", i, len(got), err)
		}
	}
	if in.Len() != 0 {
		t.Errorf("%d bytes are left", in.Len())
	}
	for _, length := range []int{len(whole) - 1, len(whole) - 5, len(whole) - 11} {
		in := bytes.NewReader(whole[:length])
		_, err := ReadRequest(in)
		for range texts {
			_, readErr := io.ReadAll(NewLayerReader(in))
			err = errors.Join(err, readErr)
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a stream of %d of %d bytes: %v", length, len(whole), err)
		}
	}
}

// FuzzLayerReader: a reader never returns more bytes than its stream has.
func FuzzLayerReader(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 'a', 'b', 0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 'a'})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := io.ReadAll(NewLayerReader(bytes.NewReader(data)))
		if len(got) > len(data) || err == nil && len(got) > len(data)-4 {
			t.Errorf("%d bytes of %d, %v", len(got), len(data), err)
		}
	})
}
