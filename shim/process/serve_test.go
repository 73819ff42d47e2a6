package process

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/shim/bootstrap"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// TestReceiveFiles: a call finds the file that was sent for it. A client that sends no file does no harm.
func TestReceiveFiles(t *testing.T) {
	w := newWorld(t)
	l := w.start(bootstrap.Message{}, nil)
	c := l.connect()
	send := func(name string) {
		t.Helper()
		if err := c.SendFile(w.ctx, name, newFile(t, name)); err != nil {
			t.Fatal(err)
		}
		f, err := l.shim.store.Remove(name)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	send("first")
	w.quiet()
	conn, err := net.Dial("unix", filepath.Join(w.dir, layout.Files))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	send("second")
	if !strings.Contains(w.logged(), "receive a file") {
		t.Errorf("the log lacks the error:\n%s", w.logged())
	}
	endPod(t, w, c)
	if err := l.wait(); err != nil {
		t.Error(err)
	}
}

// TestServingBreaks: an unreachable shim leaves its VM to another.
func TestServingBreaks(t *testing.T) {
	w := newWorld(t)
	l := w.start(bootstrap.Message{}, nil)
	c := l.connect()
	if err := l.start(c); err != nil {
		t.Fatal(err)
	}
	l.shim.listeners[3].Close() // of the API
	if err := l.wait(); err != nil || !w.driver.alive() {
		t.Errorf("%v, VM alive: %v", err, w.driver.alive())
	}
	for _, want := range []string{"level=ERROR msg=serve ", "why=term"} {
		if !strings.Contains(w.logged(), want) {
			t.Errorf("the log lacks %q:\n%s", want, w.logged())
		}
	}
}

// TestEndDrains: clients of an ending pod receive the rest of their streams, within the shim's patience.
func TestEndDrains(t *testing.T) {
	for _, why := range []string{asked, removed} {
		t.Run(why, func(t *testing.T) {
			w := newWorld(t)
			l := w.start(bootstrap.Message{}, nil)
			l.connect().Close()
			attached, lasted := make(chan struct{}), make(chan time.Duration, 1)
			token, err := l.shim.streams.Issue(func(context.Context) (func(context.Context, *net.UnixConn), error) {
				return func(ctx context.Context, _ *net.UnixConn) {
					began := time.Now()
					close(attached)
					<-ctx.Done()
					lasted <- time.Since(began)
				}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("unix", filepath.Join(w.dir, layout.Stream))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, token+"\n"); err != nil {
				t.Fatal(err)
			}
			select {
			case <-attached:
			case <-w.ctx.Done():
				t.Fatal("the stream is not served")
			}
			l.shim.requestEnd(why)
			if err := l.wait(); err != nil {
				t.Error(err)
			}
			if d := <-lasted; d < answerPatience/2 {
				t.Errorf("the stream was cut off after %v", d)
			}
		})
	}
}

// TestUnserveNothing: unserve works for a shim that has not started its services.
func TestUnserveNothing(*testing.T) { (&shim{}).unserve(true) }
