package containerd

import (
	"bufio"
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/pss"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// watch records the topics of containerd's events about tasks. The returned function waits for a last one, and returns all.
func (n *node) watch(t *testing.T) func(last string) []string {
	t.Helper()
	cmd := exec.Command(n.release.ctr, "-a", n.path("c.sock"), "-n", namespace, "events")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var mu sync.Mutex
	var topics []string
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			// 2026-11-27 10:00:00.0 +0000 UTC k8s.io /tasks/exit {"container_id":"c","id":"c",…}
			_, rest, ok := strings.Cut(lines.Text(), " /tasks/")
			topic, body, _ := strings.Cut(rest, " ")
			if !ok {
				continue
			}
			for _, id := range []string{`"exec_id":"`, `"id":"`, `"container_id":"`} {
				if _, after, found := strings.Cut(body, id); found {
					name, _, _ := strings.Cut(after, `"`)
					topic += " " + name
					break
				}
			}
			mu.Lock()
			topics = append(topics, topic)
			mu.Unlock()
		}
	}()
	// The subscription has no acknowledgement. An event of another kind shows that it is there.
	return func(last string) []string {
		t.Helper()
		for ctx := testdeadline.Context(t, 10*time.Second); ; <-time.After(5 * time.Millisecond) {
			mu.Lock()
			got := slices.Clone(topics)
			mu.Unlock()
			if slices.Contains(got, last) || ctx.Err() != nil {
				return got
			}
		}
	}
}

// life follows a container in the background from its creation to its removal.
func life(t *testing.T, n *node) {
	events := n.watch(t)
	n.run(t, "", "-d", image, "early", "/bin/true")
	events("exit early")
	n.ctr(t, "", "task", "delete", "early")
	if events("delete early"); t.Failed() {
		return
	}
	n.run(t, "", "-d", image, "c", "/bin/sleep", "1000")
	if got := n.ctr(t, "", "task", "exec", "--exec-id", "e", "c", "/bin/echo", "hello"); got != "hello\n" {
		t.Errorf("exec: got %q", got)
	}
	if got := n.ctr(t, "input", "task", "exec", "--exec-id", "f", "c", "/bin/cat"); got != "input" {
		t.Errorf("exec of cat: got %q", got)
	}
	_, err := n.try(testdeadline.Context(t, 20*time.Second), "", "task", "exec", "--exec-id", "g", "c", "/bin/sh", "-c", "exit 3")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("exec of exit 3: got %v", err)
	}
	_, err = n.try(testdeadline.Context(t, 20*time.Second), "", "task", "exec", "--exec-id", "h", "c", "/none")
	if err == nil || !strings.Contains(err.Error(), `exec: "/none": stat /none: no such file or directory`) {
		t.Errorf("exec of a missing program: got %v", err)
	}
	if got := n.ctr(t, "", "task", "ls"); !strings.Contains(got, "RUNNING") {
		t.Errorf("ls: got %q", got)
	}
	if got := n.ctr(t, "", "task", "ps", "c"); len(strings.Fields(got)) < 3 {
		t.Errorf("ps: got %q", got)
	}
	if got := n.ctr(t, "", "task", "metrics", "c"); !strings.Contains(got, "memory.usage") {
		t.Errorf("metrics: got %q", got)
	}
	for _, front := range running(t, "containerd-shim-bulkhead-v2") {
		size, err := pss.Dirty(front.PID)
		t.Logf("the front has %.1f MB of its own", float64(size)/1e6)
		if err != nil || size > 8e6 {
			t.Errorf("the front has %d bytes of its own, %v, want at most 8 MB", size, err)
		}
	}
	n.ctr(t, "", "task", "pause", "c")
	if got := n.ctr(t, "", "task", "ls"); !strings.Contains(got, "PAUSED") {
		t.Errorf("ls: got %q", got)
	}
	n.ctr(t, "", "task", "resume", "c")
	_, err = n.try(testdeadline.Context(t, 20*time.Second), "", "task", "delete", "c")
	if err == nil {
		t.Error("a running task was deleted")
	}
	n.ctr(t, "", "task", "kill", "-s", "KILL", "c")
	events("exit c")
	n.ctr(t, "", "task", "delete", "c")
	n.ctr(t, "", "container", "delete", "c", "early")
	got := events("delete c")
	got = got[slices.Index(got, "delete early")+1:]
	want := []string{
		"create c", "start c", "exec-added e", "exec-started e", "exit e", "exec-added f", "exec-started f", "exit f",
		"exec-added g", "exec-started g", "exit g", "exec-added h", "paused c", "resumed c", "exit c", "delete c",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// terminal: the terminal's output arrives, and its size reaches the process.
func terminal(t *testing.T, n *node) {
	// ctr needs a terminal, which script provides.
	command := strings.Join([]string{
		n.release.ctr, "-a", n.path("c.sock"), "-n", namespace, "run", "-t", "--rm", "--runtime", runtime, image, "tty",
		"/bin/sh", "-c", `"read line; echo got \$line"`,
	}, " ")
	cmd := exec.CommandContext(testdeadline.Context(t, 20*time.Second), "script", "-qec", command, "/dev/null")
	cmd.Stdin = strings.NewReader("typed\n")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), "got typed") {
		t.Errorf("got %q, %v", out.String(), err)
	}
}
