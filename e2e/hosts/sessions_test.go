package hosts

import "testing"

// testScope: a pod runs in a scope of its own, as services of CI start their jobs.
func (s *session) testScope(t *testing.T) {
	run := "systemd-run --quiet --scope"
	if s.user != "root" {
		run += " --user"
	}
	s.says(t, "on", run+" "+once)
}

// testNoSession: outside a login session, for example in a job of cron, a user reaches the same pods and starts new ones.
func (s *session) testNoSession(t *testing.T) {
	const run = "bulkhead exec web -- echo in; " + once
	if got := s.host.do(t, "root", "systemd-run --quiet --pipe --wait --uid="+s.user+" sh -ec '"+run+"'"); got != "in\non" {
		t.Errorf("without a session %s prints %q", s.user, got)
	}
}

// testClock: the clock of a pod is right after a pause. Two VMs of one template are not twins.
func (s *session) testClock(t *testing.T) {
	s.do(t, "bulkhead pause web && sleep 5 && bulkhead resume web")
	s.says(t, "right", "before=$(date +%s); pod=$(bulkhead exec web -- date +%s); after=$(date +%s); "+
		"[ $pod -ge $((before - 1)) ] && [ $pod -le $((after + 1)) ] && echo right || echo $before $pod $after")
	s.says(t, "2", `for i in 1 2; do bulkhead --detail run --rm localhost/busybox:demo cat /proc/sys/kernel/random/uuid; done |
		sort -u | wc -l`)
}
