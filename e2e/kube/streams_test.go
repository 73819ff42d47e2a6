package kube

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/testpty"
)

// testStreams types what users type of a running pod: exec with a terminal, cp in and out, attach, logs that are followed,
// port-forward and debug.
func (w *world) testStreams(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "streams", `{containers: [
  {name: c, command: [sh, -c, "httpd -p 127.0.0.1:8080 -h /etc; exec sleep 1000"]},
  {name: in, stdin: true, stdinOnce: true, command: [sh, -c, "while read l; do echo got $l; done"]}]}`)
	w.ready(ctx, t, "streams")
	t.Run("terminal", func(t *testing.T) { w.testTerminal(ctx, t) })
	t.Run("follow", func(t *testing.T) { w.testFollow(ctx, t) })
	t.Run("copy", func(t *testing.T) { w.testCopy(ctx, t) })
	t.Run("attach", func(t *testing.T) { w.testAttach(ctx, t) })
	t.Run("forward", func(t *testing.T) { w.testForward(ctx, t) })
	t.Run("debug", func(t *testing.T) { w.testDebug(ctx, t) })
}

// testTerminal sits at a shell whose terminal has the size of the user's own, also after that has changed.
func (w *world) testTerminal(ctx context.Context, t *testing.T) {
	p := testpty.New(t, 40, 100)
	before := p.Modes()
	shell := w.kubectl(ctx, "exec", "-it", "streams", "-c", "c", "--", "sh")
	p.Start(shell)
	p.Expect("# ")
	p.Type("stty size; tty\r")
	p.Expect(`40 100\r\n/dev/pts/0\r\n`)
	p.Resize(24, 81)
	// The new size travels beside what is typed: asked until it is there.
	p.Type("until [ \"$(stty size)\" = '24 81' ]; do sleep 0.1; done; echo re''sized\r")
	p.Expect(`resized\r\n`)
	p.Type("exit 4\r")
	p.End(shell, 4, before)
}

// testFollow reads a log while it is written.
func (w *world) testFollow(ctx context.Context, t *testing.T) {
	ctx, cancel := context.WithCancel(ctx)
	follow := w.kubectl(ctx, "logs", "-f", "streams", "-c", "c")
	log, err := follow.StdoutPipe()
	if err == nil {
		err = follow.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = follow.Wait() // it was killed
	}()
	lines := bufio.NewScanner(log)
	for _, word := range []string{"one", "two"} {
		w.typed(ctx, t, "", "exec", "streams", "-c", "c", "--", "sh", "-c", "echo "+word+" >/proc/1/fd/1")
		if !lines.Scan() || lines.Text() != word {
			t.Errorf("%q, %v, not %s", lines.Text(), lines.Err(), word)
		}
	}
}

// testCopy carries a directory, with more than fits into any buffer, into the pod and out of it.
func (w *world) testCopy(ctx context.Context, t *testing.T) {
	in, out := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
	data := make([]byte, 2<<20)
	_, _ = rand.Read(data)
	if err := os.MkdirAll(filepath.Join(in, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(in, "sub", "f"), data, 0o755); err != nil { //nolint:gosec // a mode to be carried
		t.Fatal(err)
	}
	w.typed(ctx, t, "", "cp", in, "streams:/tmp/d", "-c", "c")
	w.typed(ctx, t, "", "cp", ns+"/streams:/tmp/d", out, "-c", "c")
	w.typed(ctx, t, "", "exec", "streams", "-c", "c", "--", "test", "-x", "/tmp/d/sub/f")
	if got, err := os.ReadFile(filepath.Join(out, "sub", "f")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("out: %d of %d bytes, %v", len(got), len(data), err)
	}
}

// testAttach: what is written to a container's input comes back, and is in its log as well.
func (w *world) testAttach(ctx context.Context, t *testing.T) {
	const want = "got a\ngot b\n"
	if out := w.typed(ctx, t, "a\nb\n", "attach", "-q", "-i", "streams", "-c", "in"); out != want {
		t.Errorf("it says %q", out)
	}
	w.until(ctx, t, "streams", "restarted", func(pod *corev1.Pod) bool {
		for _, st := range pod.Status.ContainerStatuses {
			if st.Name == "in" && st.RestartCount > 0 {
				return true
			}
		}
		return false
	})
	if got := w.typed(ctx, t, "", "logs", "-p", "streams", "-c", "in"); got != want {
		t.Errorf("log %q", got)
	}
}

// testForward reads a file of a server that listens on the pod's own loopback only.
func (w *world) testForward(ctx context.Context, t *testing.T) {
	ctx, cancel := context.WithCancel(ctx)
	forward := w.kubectl(ctx, "port-forward", "pod/streams", ":8080")
	said, err := forward.StdoutPipe()
	if err == nil {
		err = forward.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_, _ = io.Copy(io.Discard, said)
		_ = forward.Wait() // it was killed
	}()
	lines := bufio.NewScanner(said)
	lines.Scan()
	at := regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+) -> 8080$`).FindStringSubmatch(lines.Text())
	if at == nil {
		t.Fatalf("it says %q, %v", lines.Text(), lines.Err())
	}
	for range 2 { // connections
		if body, err := get(ctx, "http://"+at[1]+"/hostname"); err != nil || body != "streams\n" {
			t.Errorf("the pod's server said %q, %v", body, err)
		}
	}
}

// testDebug looks at a container's processes and files from an ephemeral one.
func (w *world) testDebug(ctx context.Context, t *testing.T) {
	out := w.typed(ctx, t, `tr '\0' ' ' </proc/1/cmdline; echo; cat /proc/1/root/tmp/d/sub/f | wc -c; exit`+"\n",
		"debug", "-q", "-i", "streams", "--image="+w.image, "--target=c", "-c", "look", "--", "sh")
	if want := "sleep 1000 \n2097152\n"; out != want {
		t.Errorf("it sees %q, not %q", out, want)
	}
	w.typed(ctx, t, "", "exec", "streams", "-c", "c", "--", "true")
}
