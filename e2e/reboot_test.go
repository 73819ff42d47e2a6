package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestReboot removes what a reboot removes: all processes and the state directory. The next command must find each
// pod as docs/architecture.md says.
func TestReboot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	yaml := fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {key: kept}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: lasting}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: always}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: disk, emptyDir: {}}, {name: lasting, persistentVolumeClaim: {claimName: lasting}}]
  containers:
  - name: c
    image: %[1]s
    command:
    - sh
    - -c
    - 'echo "$S"; echo x >>/disk/file; cat /disk/file; echo y >>/lasting/file; cat /lasting/file; sync; trap exit TERM; sleep 600 & wait'
    env: [{name: S, valueFrom: {secretKeyRef: {name: s, key: key}}}]
    volumeMounts: [{name: disk, mountPath: /disk}, {name: lasting, mountPath: /lasting}]
---
%[2]s
---
%[3]s
`, image, pod("never", "Never", "sleep 600"), pod("done", "Never", "exit 3"))
	w.must(t, yaml, "run", "-d", "-")
	foreground := w.start(t, pod("foreground", "Always", "echo up; sleep 600"), "run", "-")
	w.soon(t, `up`, "logs", "foreground")
	w.soon(t, `done +0/1 +Error`, "ps")
	// The engine first: a living engine would see its client disconnect and remove the pod.
	if err := kill(w.engine()); err != nil {
		t.Fatal(err)
	}
	for tries := 0; len(w.processes()) > 0 && tries < 50; tries++ {
		for _, p := range w.processes() {
			_ = kill(p.pid)
		}
		time.Sleep(20 * time.Millisecond)
	}
	<-foreground.ended
	if err := os.RemoveAll(w.roots().State); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	w.must(t, "", "ps")
	if took := time.Since(began); took > testdeadline.For(30*time.Second) {
		t.Errorf("the first command took %v", took)
	}
	list := w.soon(t, `always +1/1 +Running +1 `, "ps")
	for _, want := range []string{"never", "done", "foreground"} {
		if !strings.Contains(list, want) {
			t.Errorf("%s is not listed:\n%s", want, list)
		}
	}
	// Data in the VM's memory is lost. emptyDirs, volumes, Secrets and logs stay.
	w.soon(t, `^kept\nx\nx\ny\ny\n$`, "logs", "always")
	if last := w.must(t, "", "logs", "--previous", "always"); last != "kept\nx\ny\n" {
		t.Errorf("the log from before: %q", last)
	}
	w.soon(t, `foreground +0/1 +(VMKilled|Stopped)`, "ps")
	for name, code := range map[string]int{"never": 137, "done": 3, "foreground": 137} {
		if c := w.run(t, "", "wait", name); c.ProcessState.ExitCode() != code {
			t.Errorf("%s: %v, want code %d", name, c, code)
		}
	}
}
