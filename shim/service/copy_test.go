package service_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// guestTree returns a client of a guest that sends the same tree for every request and accepts every tree.
func (f *fake) guestTree() *agentv1.Client {
	return agentv1.NewClient(func(ctx context.Context) (net.Conn, error) {
		host, guest := net.Pipe()
		go func() {
			_ = agentv1.Serve(context.WithoutCancel(ctx), guest, agentv1.Handlers{agentv1.OpPack: f.packTree, agentv1.OpUnpack: f.unpackTree})
		}()
		return host, nil
	})
}

func (f *fake) Pack(ctx context.Context, id, path string) (*agentv1.TreeReader, error) {
	f.note("pack %s %s", id, path)
	return f.guestTree().Pack(ctx, agentv1.Pack{Container: id, Path: path})
}

func (f *fake) Unpack(ctx context.Context, id, path string, into bool) (*agentv1.TreeWriter, error) {
	f.note("unpack %s %s %v", id, path, into)
	return f.guestTree().Unpack(ctx, agentv1.Unpack{Container: id, Path: path, Into: into})
}

func (f *fake) packTree(_ context.Context, s *agentv1.Stream) error {
	if strings.Contains(string(s.Body), "/none") {
		return fmt.Errorf("no such place: %w", errdefs.ErrNotFound)
	}
	if err := s.Reply(nil); err != nil {
		return err
	}
	end := agentv1.Entry{Kind: agentv1.KindEnd}
	if strings.Contains(string(s.Body), "/broken") {
		end.Error = agentv1.ToError(errors.New("the disk is broken"))
	}
	for _, e := range []agentv1.Entry{
		{Kind: agentv1.KindDir, Name: []byte("t"), Mode: 0o755},
		{Kind: agentv1.KindFile, Name: []byte("t/ü"), Size: 3, Mode: 0o640, MTime: 5e9},
		{Kind: agentv1.KindSymlink, Name: []byte("t/l"), Target: []byte("ü")},
		{Kind: agentv1.KindLink, Name: []byte("t/b"), Target: []byte("t/ü")},
		{Kind: agentv1.KindSkipped, Name: []byte("t/\x1b[31m"), Target: []byte("a pipe")},
		end,
	} {
		if err := agentv1.WriteEntry(s.Conn, e); err != nil {
			return err
		}
		if _, err := io.WriteString(s.Conn, strings.Repeat("x", int(e.Size))); err != nil {
			return err
		}
	}
	return nil
}

func (f *fake) unpackTree(ctx context.Context, s *agentv1.Stream) error {
	if err := s.Reply(nil); err != nil {
		return err
	}
	if f.deaf {
		<-ctx.Done()
		return ctx.Err()
	}
	for {
		e, err := agentv1.ReadEntry(s.Conn)
		if err != nil {
			return err
		}
		f.note("%s %s %s %o %d", e.Kind, e.Name, e.Target, e.Mode, e.Size)
		if string(e.Name) == "full" {
			return agentv1.WriteFrame(s.Conn, agentv1.Reply{Error: agentv1.ToError(errors.New("no space left"))}, agentv1.MaxReply)
		}
		if _, err := io.CopyN(io.Discard, s.Conn, e.Size); err != nil {
			return err
		}
		if e.Kind == agentv1.KindEnd {
			return agentv1.WriteFrame(s.Conn, agentv1.Reply{}, agentv1.MaxReply)
		}
	}
}

func TestCopyOut(t *testing.T) {
	r := start(t)
	conn := r.open(t, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_COPY_OUT, ContainerId: "c", Path: "/t"})
	var archive, notes bytes.Buffer
	if code, err := (stream.Stdio{Stdout: &archive, Stderr: &notes}).Run(t.Context(), conn); code != 0 || err != nil {
		t.Fatalf("code %d, %v", code, err)
	}
	if notes.String() != "left out \"t/\\x1b[31m\": \"a pipe\"\n" {
		t.Errorf("notes: %q", notes.String())
	}
	var got []string
	for tr := tar.NewReader(&archive); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%c %s %s %o %q", h.Typeflag, h.Name, h.Linkname, h.Mode, content))
	}
	want := []string{`5 t/  755 ""`, `0 t/ü  640 "xxx"`, `2 t/l ü 0 ""`, `1 t/b t/ü 0 ""`}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	if conn, err := r.dial(t, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_COPY_OUT, Path: "/none"}); !errors.Is(err, stream.ErrRefused) ||
		!strings.Contains(err.Error(), "no such place") {
		t.Errorf("a missing tree: %v, %v", conn, err)
	}
	conn = r.open(t, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_COPY_OUT, Path: "/broken"})
	if _, err := (stream.Stdio{Stdout: io.Discard}).Run(t.Context(), conn); err == nil ||
		!strings.Contains(err.Error(), "the disk is broken") {
		t.Errorf("a tree that is not whole: %v", err)
	}
}

func TestCopyIn(t *testing.T) {
	r := start(t)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}, {Typeflag: tar.TypeReg, Name: "./a", Mode: 0o600, Size: 4, ModTime: time.Unix(5, 0)},
		{Typeflag: tar.TypeFifo, Name: "./pipe"}, {Typeflag: tar.TypeSymlink, Name: "b/../l", Linkname: "a"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, strings.Repeat("x", int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run := func(archive io.Reader) (string, error) {
		conn := r.open(t, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_COPY_IN, ContainerId: "c", Path: "/to", Into: true})
		var notes bytes.Buffer
		_, err := (stream.Stdio{Stdin: archive, Stderr: &notes}).Run(t.Context(), conn)
		return notes.String(), err
	}
	notes, err := run(bytes.NewReader(archive.Bytes()))
	if err != nil || !strings.Contains(notes, "./pipe") {
		t.Errorf("%v, %q", err, notes)
	}
	for _, want := range []string{"unpack c /to true", "dir .  755 0", "file ./a  600 4", "symlink l a 0 0", "end   0 0"} {
		if !slices.Contains(r.fake.noted(), want) {
			t.Errorf("not %q in %q", want, r.fake.noted())
		}
	}
	for name, broken := range map[string][]byte{"cut": archive.Bytes()[:700], "no archive": bytes.Repeat([]byte("x"), 2000)} {
		if _, err := run(bytes.NewReader(broken)); err == nil || !strings.Contains(err.Error(), "read the archive") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var full bytes.Buffer
	w = tar.NewWriter(&full)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "full", Size: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := run(io.MultiReader(&full, io.LimitReader(endless{}, 1<<20))); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a full disk: %v", err)
	}
}

// TestCopySkipsSilentlyAtLast: only the first hundred skipped files are reported.
func TestCopySkipsSilentlyAtLast(t *testing.T) {
	r := start(t)
	var archive, notes bytes.Buffer
	w := tar.NewWriter(&archive)
	for i := range 102 {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeFifo, Name: fmt.Sprint("pipe", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	conn := r.open(t, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_COPY_IN, ContainerId: "c", Path: "/to"})
	if _, err := (stream.Stdio{Stdin: &archive, Stderr: &notes}).Run(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(notes.String(), "left out"); n != 100 || !strings.Contains(notes.String(), "pipe99") {
		t.Errorf("%d files are reported, the last %q", n, notes.String()[max(0, notes.Len()-80):])
	}
}

// TestCopyToADeafPod: a copy to a pod that reads nothing ends with its client.
func TestCopyToADeafPod(t *testing.T) {
	r := start(t)
	r.fake.deaf = true
	conn := r.open(t, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_COPY_IN, ContainerId: "c", Path: "/to"})
	var archive bytes.Buffer
	if err := tar.NewWriter(&archive).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "large", Size: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // until all buffers are full
	defer cancel()
	if _, err := (stream.Stdio{Stdin: io.MultiReader(&archive, endless{})}).Run(ctx, conn); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if r.streams.Drain(ctx); ctx.Err() != nil {
		t.Error("the stream does not end")
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
