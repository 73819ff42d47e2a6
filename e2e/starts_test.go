package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// watched is a pod with a liveness probe every second and a timeout of one second. It counts its probes.
const watched = `apiVersion: v1
kind: Pod
metadata: {name: watched}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, ": >/asked; exec sleep 1000"]
    livenessProbe: {periodSeconds: 1, timeoutSeconds: 1, exec: {command: [sh, -c, "echo >>/asked"]}}
`

// TestProbesBesideStarts: while other pods start, a healthy pod is probed as before and keeps running.
func TestProbesBesideStarts(t *testing.T) {
	w := newWorld(t) // not beside other tests, because only the load of the starts should count
	w.must(t, strings.ReplaceAll(watched, "IMAGE", image), "run", "-d", "-q", "-")
	w.until(t, "watched", "it is ready", ready)
	asked := func() int {
		n, err := strconv.Atoi(strings.TrimSpace(w.must(t, "", "exec", "watched", "--", "sh", "-c", "wc -l </asked")))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var others, names []string
	for i := range 6 {
		names = append(names, fmt.Sprintf("other-%d", i))
		others = append(others, pod(names[i], "Never", "exec sleep 1000"))
	}
	before, began := asked(), time.Now()
	w.must(t, strings.Join(others, "\n---\n"), "run", "-d", "-q", "-")
	for _, name := range names {
		w.until(t, name, "it is ready", ready)
	}
	took, times := time.Since(began), asked()-before
	t.Logf("asked %d times while %d pods started in %v", times, len(names), took)
	// A failed probe is also repeated after its period.
	if least := int(took / (4 * time.Second)); times < least {
		t.Errorf("asked %d times in %v, which is less than %d", times, took, least)
	}
	if c := containerOf(w.inspect(t, "watched").Status, "c"); c.RestartCount != 0 {
		t.Errorf("killed for its liveness: %+v", c)
	}
	w.must(t, "", append([]string{"rm", "-f", "watched"}, names...)...)
}
