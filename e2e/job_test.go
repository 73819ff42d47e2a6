package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// jobOf returns a Job with pods that run a script, each with its index.
func jobOf(name string, completions int, more, script string) string {
	return fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {name: %s},
  spec: {completions: %d, completionMode: Indexed, backoffLimit: 0, %s template: {spec: {
  restartPolicy: Never, terminationGracePeriodSeconds: 2,
  containers: [{name: c, image: %q, command: [sh, -c, %q]}]}}}}`, name, completions, more, image, script)
}

// TestJob: the pods of a Job run in turns, one at a time by default, also after a restart of the engine. The first
// failure ends them.
func TestJob(t *testing.T) {
	t.Parallel()
	w := newForkingWorld(t)

	// A detached command does not wait for the turns.
	names := strings.Fields(w.must(t, jobOf("sum", 3, "", "echo begin; sleep 2; echo end"), "run", "-d", "-q", "-"))
	if want := []string{"sum-0", "sum-1", "sum-2"}; !slices.Equal(names, want) {
		t.Fatalf("it started %v", names)
	}
	if got := w.must(t, "", "ps", "-a"); strings.Count(got, "Pending") < 1 {
		t.Errorf("none waits:\n%s", got)
	}
	w.shutdown(t)
	var last time.Time
	for _, name := range names {
		if c := w.run(t, "", "wait", name); c.ProcessState.ExitCode() != 0 {
			t.Fatal(c)
		}
		lines := strings.Split(strings.TrimSpace(w.must(t, "", "logs", "--timestamps", name)), "\n")
		begin, end := stamp(t, lines[0]), stamp(t, lines[len(lines)-1])
		if len(lines) != 2 || begin.Before(last) {
			t.Errorf("%s began at %v, and the one before it ended at %v", name, begin, last)
		}
		last = end
	}
	w.must(t, "", "rm", "sum-0", "sum-1", "sum-2")

	// In the foreground all run to the end, and the exit code is that of the failed pod.
	all := w.run(t, jobOf("all", 3, "parallelism: 2,", "echo I am $JOB_COMPLETION_INDEX"), "run", "-q", "--rm", "-")
	if out := all.out.String(); all.ProcessState.ExitCode() != 0 || strings.Count(out, "I am") != 3 || !strings.Contains(out, "I am 2") {
		t.Error(all)
	}
	bad := w.run(t, jobOf("bad", 4, "", "exit $((JOB_COMPLETION_INDEX * 3))"), "run", "-q", "-")
	if bad.ProcessState.ExitCode() != 3 || strings.Count(bad.err.String(), "JobFailed") != 2 {
		t.Error(bad)
	}

	// The command waits for the start of pods that need not wait.
	lost := strings.Replace(jobOf("lost", 2, "", "true"), image, "localhost/lost:test", 1)
	if c := w.run(t, lost, "run", "-d", "-q", "-"); c.ProcessState.ExitCode() == 0 || c.out.Len() > 0 {
		t.Error(c)
	}

	// Waiting pods end at once, without a VM.
	w.must(t, jobOf("long", 2, "", "sleep 1000"), "run", "-d", "-q", "-")
	c := w.run(t, "", "logs", "-c", "c", "long-1")
	if c.ProcessState.ExitCode() == 0 || !strings.Contains(c.err.String(), "waits for its turn") {
		t.Error(c)
	}
	w.must(t, "", "stop", "long-1")
	w.must(t, "", "rm", "long-1")
	w.must(t, "", "rm", "-f", "long-0")
}

// stamp parses the time at the beginning of a log line.
func stamp(t *testing.T, line string) time.Time {
	t.Helper()
	text, _, _ := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return at
}
