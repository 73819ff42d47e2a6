package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/e2e/records"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// writing is a pod with containers that write numbered records: one to a directory of the host, one to an emptyDir
// on the pod's disk.
const writing = `apiVersion: v1
kind: Pod
metadata: {name: writing}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: tools, hostPath: {path: DIR/tools, type: Directory}}
  - {name: shared, hostPath: {path: DIR/shared, type: DirectoryOrCreate}}
  - {name: disk, emptyDir: {}}
  containers:
  - name: shared
    image: IMAGE
    command: [/tools/writer, /shared/records]
    volumeMounts: [{name: tools, mountPath: /tools, readOnly: true}, {name: shared, mountPath: /shared}]
  - name: disk
    image: IMAGE
    command: [/tools/writer, /disk/records]
    volumeMounts: [{name: tools, mountPath: /tools, readOnly: true}, {name: disk, mountPath: /disk}]
`

// TestKillMidWrite kills each process of a pod, and the engine, while the pod writes. Every record that the program
// knew to be on the disk must be intact afterwards. The pod must continue to write in the same VM, or in the next
// one if the VM was killed.
func TestKillMidWrite(t *testing.T) {
	testturn.SkipUnless(t, 2, 3)
	t.Parallel()
	midWrite(t, newWorld(t))
}

func midWrite(t *testing.T, w *world) {
	t.Helper()
	dir := w.home(t, "writing")
	buildWriter(t, filepath.Join(dir, "tools"))
	w.must(t, "", "run", "--rm", "-q", image, "true") // so that everything that the first pod creates exists
	before := w.calm()
	w.must(t, strings.NewReplacer("DIR", dir, "IMAGE", image).Replace(writing), "run", "-d", "-q", "-")
	rounds := 1
	if os.Getenv("BULKHEAD_TEST_LONG") != "" {
		rounds = 10
	}
	for round := range rounds {
		for _, victim := range []string{"share", "shim", "engine", "qemu"} {
			t.Run(fmt.Sprintf("%s/%d", victim, round), func(t *testing.T) { w.killWriting(t, dir, victim) })
		}
	}
	w.must(t, "", "rm", "-f", "writing")
	if left := w.awaitSame(before); len(left) > 0 {
		t.Errorf("not as before:\n%s", strings.Join(left, "\n"))
	}
	w.end(t)
}

// killWriting kills one process and checks the written records.
func (w *world) killWriting(t *testing.T, dir, victim string) {
	t.Helper()
	was := w.find(t, "writing")
	acked := w.progress(t, 0, 0)
	var killed int
	for _, p := range w.processes() {
		if p.is(victim) || victim == "shim" && p.shim() == was.Sandbox || victim == "qemu" && p.qemu() != "" {
			killed++
			if err := kill(p.pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	if killed != 1 {
		t.Fatalf("%d processes are %s among %v", killed, victim, w.processes())
	}
	reported := w.acked(t)
	for i := range acked {
		acked[i] = max(acked[i], reported[i])
	}
	w.progress(t, acked[0]+10, acked[1]+10)
	now := w.find(t, "writing")
	if same := now.Sandbox == was.Sandbox; same != (victim != "qemu") || now.Status != "Running" {
		t.Errorf("it was %+v and is %+v", was, now)
	}
	if victim != "qemu" && now.Restarts != was.Restarts {
		t.Errorf("containers were started %d times again", now.Restarts-was.Restarts)
	}
	reported = w.acked(t)
	shared, err := os.ReadFile(filepath.Join(dir, "shared/records"))
	if err != nil {
		t.Fatal(err)
	}
	disk := w.must(t, "", "exec", "writing", "-c", "disk", "--", "cat", "/disk/records")
	for i, data := range [][]byte{shared, []byte(disk)} {
		n, size, err := records.Whole(bytes.NewReader(data))
		if err != nil || n < reported[i] {
			t.Errorf("file %d: %d records of %d in %d of %d bytes: %v", i, n, reported[i], size, len(data), err)
		}
	}
}

// progress returns the progress of the containers once both have passed the given numbers.
func (w *world) progress(t *testing.T, shared, disk int) [2]int {
	t.Helper()
	for deadline := time.Now().Add(testdeadline.For(90 * time.Second)); ; time.Sleep(50 * time.Millisecond) {
		got := w.acked(t)
		if got[0] > shared && got[1] > disk {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("they make no progress at %d, with %d and %d to come to; %+v", got, shared, disk, w.find(t, "writing"))
		}
	}
}

// acked returns the last numbers that the containers have printed, from their logs.
func (w *world) acked(t *testing.T) (last [2]int) {
	t.Helper()
	uid := w.find(t, "writing").UID
	for i, name := range []string{"shared", "disk"} {
		logs, err := filepath.Glob(filepath.Join(w.roots().Data, "pods", uid, "logs", name, "*.log*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range logs {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // rotated meanwhile
			}
			for line := range strings.Lines(string(text)) {
				fields := strings.Fields(line)
				if len(fields) != 4 || fields[1] != "stdout" || !strings.HasSuffix(line, "\n") {
					continue
				}
				if n, err := strconv.Atoi(fields[3]); err == nil {
					last[i] = max(last[i], n)
				}
			}
		}
	}
	return last
}

// buildWriter builds the program of the pods that write into dir.
func buildWriter(t *testing.T, dir string) {
	t.Helper()
	ctx, program := testdeadline.Context(t, time.Minute), filepath.Join(dir, "writer")
	cmd := testgo.Command(ctx, "build", "-trimpath", "-o", program, "./testdata/writer")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
