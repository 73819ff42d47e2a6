package output

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// answer is the agent's answer to one request for output.
type answer struct {
	at     int64 // offset of the output
	refuse error
	chunks []string // "" is the stream's end; a stream without one is cut
}

// script is an agent that gives its answers in order and cuts every later stream.
type script struct {
	t       *testing.T
	answers []answer
	asked   []int64
	acked   []int64
	closed  bool // by NoReader
	serving sync.WaitGroup
}

func (s *script) open(context.Context) (net.Conn, error) {
	s.serving.Wait() // the stream before
	near, far := net.Pipe()
	s.serving.Go(func() {
		_ = agentv1.Serve(s.t.Context(), far, agentv1.Handlers{
			agentv1.OpOutput: func(_ context.Context, c *agentv1.Stream) error {
				if len(s.answers) == 0 {
					return c.Close()
				}
				a := s.answers[0]
				s.answers = s.answers[1:]
				return s.output(c, a)
			},
			agentv1.OpNoReader: func(_ context.Context, c *agentv1.Stream) error {
				s.closed = true
				return c.Reply(nil)
			},
		})
	})
	return near, nil
}

func (s *script) output(c *agentv1.Stream, a answer) error {
	var r agentv1.Output
	if err := json.Unmarshal(c.Body, &r); err != nil {
		return err
	}
	s.asked = append(s.asked, r.Offset)
	if a.refuse != nil {
		return a.refuse
	}
	if err := c.Reply(agentv1.Offset{Offset: a.at}); err != nil {
		return err
	}
	acks := make(chan struct{})
	go func() {
		defer close(acks)
		for ack, err := agentv1.ReadAck(c); err == nil; ack, err = agentv1.ReadAck(c) {
			s.acked = append(s.acked, ack)
		}
	}()
	for _, chunk := range a.chunks {
		if agentv1.WriteChunk(c, []byte(chunk)) != nil {
			break
		}
		time.Sleep(time.Millisecond) // until everything is acknowledged: the clock is the bubble's
	}
	if n := len(a.chunks); n == 0 || a.chunks[n-1] != "" {
		c.Close()
	}
	<-acks
	return nil
}

// TestRun: after each cut the stream is reopened at the last safe offset, until its end. A refusal or lost output
// ends it early, with a warning.
func TestRun(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answers []answer
		logged  bool // the process has a log
		resumed bool
		ended   bool // the VM has ended, at the first cut
		want    string
		asked   []int64
		acked   []int64
		early   string // the warning
	}{
		{
			name: "whole", answers: []answer{{chunks: []string{"ab", "c", ""}}},
			want: "abc", asked: []int64{0}, acked: []int64{2, 3, 3},
		},
		{
			name: "cut", answers: []answer{{chunks: []string{"ab"}}, {at: 2}, {at: 2, chunks: []string{"c", ""}}},
			want: "abc", asked: []int64{0, 2, 2}, acked: []int64{2, 3, 3},
		},
		{
			name: "the VM ended", answers: []answer{{chunks: []string{"ab"}}, {at: 2, chunks: []string{"c", ""}}}, ended: true,
			want: "ab", asked: []int64{0}, acked: []int64{2},
		},
		{
			name: "refused", answers: []answer{{refuse: errdefs.ErrNotFound}},
			asked: []int64{0}, early: errdefs.ErrNotFound.Error(),
		},
		{
			name: "lost at the beginning", answers: []answer{{at: 5, chunks: []string{"ab", ""}}},
			asked: []int64{0}, early: errLost.Error(),
		},
		{
			name: "lost after a cut", answers: []answer{{chunks: []string{"ab"}}, {at: 3, chunks: []string{"d", ""}}}, resumed: true,
			want: "ab", asked: []int64{0, 2}, acked: []int64{2}, early: errLost.Error(),
		},
		{
			name: "copied by an earlier shim", answers: []answer{{at: 5, chunks: []string{"ab"}}, {at: 7, chunks: []string{"c", ""}}}, resumed: true,
			want: "abc", asked: []int64{0, 7}, acked: []int64{7, 8, 8},
		},
		{
			name: "logged", answers: []answer{{chunks: []string{"a\n", "b", "c\n", "d", ""}}}, logged: true,
			want: "a\nbc\nd", asked: []int64{0}, acked: []int64{2, 5, 6},
		},
		{
			name: "logged and cut", answers: []answer{{chunks: []string{"a\nb"}}, {at: 2, chunks: []string{"bc\n", ""}}}, logged: true,
			want: "a\nbc\n", asked: []int64{0, 2}, acked: []int64{2, 5, 5},
		},
		{
			name: "logged and lost", answers: []answer{{at: 5, chunks: []string{"a\n", ""}}}, logged: true, resumed: true,
			asked: []int64{0}, early: errLost.Error(),
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{t: t, answers: tc.answers}
			var log bytes.Buffer
			ended := make(chan struct{})
			p := &Pump{
				Agent: agentv1.NewClient(s.open), Ended: ended, Stream: logs.Stderr,
				Hub: NewHub(), Resumed: tc.resumed, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}
			if tc.ended {
				close(ended)
			}
			path := filepath.Join(t.TempDir(), "log")
			if tc.logged {
				p.Log = newLog(t, path)
			}
			c := p.Hub.Join(true)
			p.Run(t.Context())
			s.serving.Wait()
			var got bytes.Buffer
			if err := c.CopyTo(t.Context(), &got); err != nil || got.String() != tc.want {
				t.Errorf("%s: the client has %q, want %q: %v", tc.name, &got, tc.want, err)
			}
			if !slices.Equal(s.asked, tc.asked) || !slices.Equal(s.acked, tc.acked) {
				t.Errorf("%s: asked for %v, want %v; acknowledged %v, want %v", tc.name, s.asked, tc.asked, s.acked, tc.acked)
			}
			if (log.Len() > 0) != (tc.early != "") || !strings.Contains(log.String(), tc.early) {
				t.Errorf("%s: logged %q, want %q", tc.name, &log, tc.early)
			}
			if p.Log != nil {
				if text := messages(t, path); text != strings.TrimSuffix(tc.want, "\n") {
					t.Errorf("%s: logged %q", tc.name, text)
				}
			}
		})
	}
}

// newLog returns the writer of a log at path.
func newLog(t *testing.T, path string) *logs.Writer {
	t.Helper()
	w, err := logs.Open(path+".record", openLog(t, path), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func openLog(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// messages returns the texts in a log, without the last newline.
func messages(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for line := range strings.Lines(string(b)) {
		if _, text, ok := strings.Cut(line, " F "); ok {
			all.WriteString(text)
		} else if _, text, ok := strings.Cut(line, " P "); ok {
			all.WriteString(strings.TrimSuffix(text, "\n"))
		}
	}
	return strings.TrimSuffix(all.String(), "\n")
}

// TestRunStops: the end of the context ends a stream and its clients silently.
func TestRunStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &script{t: t}
		p := &Pump{Agent: agentv1.NewClient(s.open), Hub: NewHub(), Logger: slog.New(slog.NewTextHandler(&log, nil))}
		c := p.Hub.Join(false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p.Run(ctx)
		if err := c.CopyTo(t.Context(), io.Discard); err != nil || log.Len() > 0 {
			t.Errorf("%v, logged %q", err, &log)
		}
	})
}
