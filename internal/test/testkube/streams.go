package testkube

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpty"
)

// StreamsPod is the specification of the pod for Streams. Its image is busybox.
const StreamsPod = `{containers: [
  {name: c, command: [sh, -c, "httpd -p 127.0.0.1:8080 -h /etc; exec sleep 1000"]},
  {name: in, stdin: true, stdinOnce: true, command: [sh, -c, "while read l; do echo got $l; done"]}]}`

// Copied is the file of 2 MiB that Streams leaves in the container c of its pod.
const Copied = "/tmp/d/sub/f"

// Streams runs users' commands on a running pod with the specification StreamsPod in the namespace "default": exec with
// a terminal, logs -f, cp in and out, attach and port-forward.
func (u User) Streams(ctx context.Context, t *testing.T, pod string) {
	t.Helper()
	for _, one := range []struct {
		name string
		test func(ctx context.Context, t *testing.T, pod string)
	}{
		{"terminal", u.testTerminal},
		{"follow", u.testFollow},
		{"copy", u.testCopy},
		{"attach", u.testAttach},
		{"forward", u.testForward},
	} {
		t.Run(one.name, func(t *testing.T) { one.test(ctx, t, pod) })
	}
}

// testTerminal runs a shell with a terminal of the size of the user's own, also after a change.
func (u User) testTerminal(ctx context.Context, t *testing.T, pod string) {
	p := testpty.New(t, 40, 100)
	before := p.Modes()
	shell := u.Kubectl(ctx, "exec", "-it", pod, "-c", "c", "--", "sh")
	p.Start(shell)
	p.Expect("# ")
	p.Type("stty size; tty\r")
	p.Expect(`40 100\r\n/dev/pts/0\r\n`)
	p.Resize(24, 81)
	// The new size arrives beside the input, so ask until it is there.
	p.Type("until [ \"$(stty size)\" = '24 81' ]; do sleep 0.1; done; echo re''sized\r")
	p.Expect(`resized\r\n`)
	p.Type("exit 4\r")
	p.CheckExit(shell, 4, before)
}

// testFollow reads a log while it is written.
func (u User) testFollow(ctx context.Context, t *testing.T, pod string) {
	ctx, cancel := context.WithCancel(ctx)
	follow := u.Kubectl(ctx, "logs", "-f", pod, "-c", "c")
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
		u.Typed(ctx, t, "", "exec", pod, "-c", "c", "--", "sh", "-c", "echo "+word+" >/proc/1/fd/1")
		if !lines.Scan() || lines.Text() != word {
			t.Errorf("%q, %v, not %s", lines.Text(), lines.Err(), word)
		}
	}
}

// testCopy copies a directory, larger than any buffer, into the pod and out of it.
func (u User) testCopy(ctx context.Context, t *testing.T, pod string) {
	in, out := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
	data := make([]byte, 2<<20)
	_, _ = rand.Read(data)
	if err := os.MkdirAll(filepath.Join(in, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(in, "sub", "f"), data, 0o755); err != nil { //nolint:gosec // a mode to be copied
		t.Fatal(err)
	}
	u.Typed(ctx, t, "", "cp", in, pod+":/tmp/d", "-c", "c")
	u.Typed(ctx, t, "", "cp", metav1.NamespaceDefault+"/"+pod+":/tmp/d", out, "-c", "c")
	u.Typed(ctx, t, "", "exec", pod, "-c", "c", "--", "test", "-x", Copied)
	if got, err := os.ReadFile(filepath.Join(out, "sub", "f")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("out: %d of %d bytes, %v", len(got), len(data), err)
	}
}

// testAttach: the input of a container comes back, and is in its log as well.
func (u User) testAttach(ctx context.Context, t *testing.T, pod string) {
	const want = "got a\ngot b\n"
	if out := u.Typed(ctx, t, "a\nb\n", "attach", "-q", "-i", pod, "-c", "in"); out != want {
		t.Errorf("the output is %q", out)
	}
	u.c.Wait(ctx, t, "the container to be restarted", func(ctx context.Context) error {
		now, err := u.c.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, st := range now.Status.ContainerStatuses {
			if st.Name == "in" && st.RestartCount > 0 {
				return nil
			}
		}
		return fmt.Errorf("its status is %s", &now.Status)
	})
	logs := u.c.Client.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(pod, &corev1.PodLogOptions{Container: "in", Previous: true})
	if got, err := logs.DoRaw(ctx); err != nil || string(got) != want {
		t.Errorf("log %q, %v", got, err)
	}
}

// testForward reads a file from a server that listens only on the pod's loopback.
func (u User) testForward(ctx context.Context, t *testing.T, pod string) {
	ctx, cancel := context.WithCancel(ctx)
	forward := u.Kubectl(ctx, "port-forward", "pod/"+pod, ":8080")
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
		t.Fatalf("the output is %q, %v", lines.Text(), lines.Err())
	}
	for range 2 { // connections
		if body, err := Fetch(ctx, "http://"+at[1]+"/hostname"); err != nil || body != pod+"\n" {
			t.Errorf("the pod's server said %q, %v", body, err)
		}
	}
}

// Fetch fetches a page over a new connection, whatever its status.
func Fetch(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	r.Close = true
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	return string(body), err
}
