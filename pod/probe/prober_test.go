package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testclock"
)

// spec returns a probe with the API's defaults and these changes.
func spec(change ...func(*corev1.Probe)) *corev1.Probe {
	p := &corev1.Probe{TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
	for _, change := range change {
		change(p)
	}
	return p
}

func delay(n int32) func(*corev1.Probe)    { return func(p *corev1.Probe) { p.InitialDelaySeconds = n } }
func period(n int32) func(*corev1.Probe)   { return func(p *corev1.Probe) { p.PeriodSeconds = n } }
func success(n int32) func(*corev1.Probe)  { return func(p *corev1.Probe) { p.SuccessThreshold = n } }
func failures(n int32) func(*corev1.Probe) { return func(p *corev1.Probe) { p.FailureThreshold = n } }

// subject is a container with scripted results of probes.
type subject struct {
	*Prober
	began  time.Time
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	answers map[Kind]func(at time.Duration) (Result, string, error)
	asked   map[Kind][]time.Duration
	events  []string
	changes int
	pauses  uint64
	paused  bool
}

func good(time.Duration) (Result, string, error) { return Success, "", nil }
func bad(time.Duration) (Result, string, error)  { return Failure, "oh\n", nil }

// until returns the results of first before a time, and then the results of then.
func until(limit time.Duration, first, then func(time.Duration) (Result, string, error)) func(time.Duration) (Result, string, error) {
	return func(at time.Duration) (Result, string, error) {
		if at < limit {
			return first(at)
		}
		return then(at)
	}
}

// watch probes a container within a synctest bubble.
func watch(t *testing.T, startup, liveness, readiness *corev1.Probe, answers map[Kind]func(time.Duration) (Result, string, error),
	change ...func(*Options)) *subject {
	t.Helper()
	s := &subject{began: time.Now(), answers: answers, asked: map[Kind][]time.Duration{}, ended: make(chan struct{})}
	o := Options{
		Container: &corev1.Container{Name: "c", StartupProbe: startup, LivenessProbe: liveness, ReadinessProbe: readiness},
		Began:     s.began,
		Probe: func(ctx context.Context, probe *corev1.Probe) (Result, string, error) {
			kind := map[*corev1.Probe]Kind{startup: Startup, liveness: Liveness, readiness: Readiness}[probe]
			at := time.Since(s.began)
			s.mu.Lock()
			s.asked[kind] = append(s.asked[kind], at)
			answer := s.answers[kind]
			s.mu.Unlock()
			if answer == nil {
				<-ctx.Done()
				return Unknown, "", ctx.Err()
			}
			return answer(at)
		},
		Stalls: func() (uint64, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.pauses, s.paused
		},
		Changed: func() { s.mu.Lock(); s.changes++; s.mu.Unlock() },
		Event: func(reason, message string) {
			s.mu.Lock()
			s.events = append(s.events, reason+": "+message)
			s.mu.Unlock()
		},
	}
	for _, change := range change {
		change(&o)
	}
	s.Prober = New(o)
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	go func() {
		defer close(s.ended)
		s.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-s.ended })
	synctest.Wait()
	return s
}

func (s *subject) after(d time.Duration) Verdict {
	time.Sleep(d)
	synctest.Wait()
	return s.Verdict()
}

func (s *subject) times(kind Kind) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[kind]
}

type answers = map[Kind]func(time.Duration) (Result, string, error)

const sec = time.Second

// TestVerdict checks a container's verdict at several times.
func TestVerdict(t *testing.T) {
	type moment struct {
		at   time.Duration
		want Verdict
	}
	up, started, idle := Verdict{Started: true, Ready: true}, Verdict{Started: true}, Verdict{}
	livenessFailed, startupFailed := Verdict{Started: true, Ready: true, Failed: Liveness}, Verdict{Failed: Startup}
	tests := []struct {
		name                         string
		startup, liveness, readiness *corev1.Probe
		answers                      answers
		moments                      []moment
	}{
		{name: "no probes", moments: []moment{{0, up}, {time.Hour, up}}},

		{name: "ready at once", readiness: spec(), answers: answers{Readiness: good}, moments: []moment{{0, up}, {time.Hour, up}}},
		{name: "readiness begins false", readiness: spec(delay(5)), answers: answers{Readiness: good},
			moments: []moment{{0, started}, {5*sec - 1, started}, {5 * sec, up}}},
		{name: "never ready", readiness: spec(), answers: answers{Readiness: bad}, moments: []moment{{0, started}, {time.Hour, started}}},
		{name: "ready soon after the start, whatever the period", readiness: spec(), answers: answers{Readiness: until(sec/2, bad, good)},
			moments: []moment{{0, started}, {sec / 2, started}, {750 * time.Millisecond, up}}},
		{name: "ready after a while", readiness: spec(), answers: answers{Readiness: until(25*sec, bad, good)},
			moments: []moment{{25 * sec, started}, {30 * sec, up}}},
		{name: "readiness goes after three failures", readiness: spec(), answers: answers{Readiness: until(15*sec, good, bad)},
			moments: []moment{{15 * sec, up}, {39 * sec, up}, {40 * sec, started}}},
		{name: "readiness goes after one failure", readiness: spec(failures(1)), answers: answers{Readiness: until(15*sec, good, bad)},
			moments: []moment{{19 * sec, up}, {20 * sec, started}}},
		{name: "readiness comes back", readiness: spec(failures(1)),
			answers: answers{Readiness: until(15*sec, good, until(35*sec, bad, good))},
			moments: []moment{{20 * sec, started}, {39 * sec, started}, {40 * sec, up}}},
		{name: "readiness comes back after two successes", readiness: spec(failures(1), success(2)),
			answers: answers{Readiness: until(15*sec, good, until(35*sec, bad, good))},
			moments: []moment{{0, started}, {10 * sec, up}, {20 * sec, started}, {40 * sec, started}, {50 * sec, up}}},
		{name: "failures that are not in a row", readiness: spec(failures(2)),
			answers: answers{Readiness: func(at time.Duration) (Result, string, error) {
				if at > 5*sec && int(at/sec)%20 == 10 {
					return bad(at)
				}
				return good(at)
			}}, moments: []moment{{0, up}, {time.Hour, up}}},
		{name: "a warning is a success", readiness: spec(),
			answers: answers{Readiness: func(time.Duration) (Result, string, error) { return Warning, "elsewhere", nil }},
			moments: []moment{{0, up}}},
		{name: "errors do not count", readiness: spec(failures(1)),
			answers: answers{Readiness: until(5*sec, good,
				func(time.Duration) (Result, string, error) { return Unknown, "", errors.New("no runtime") })}, moments: []moment{{time.Hour, up}}},

		{name: "alive", liveness: spec(), answers: answers{Liveness: good}, moments: []moment{{time.Hour, up}}},
		{name: "dead after three periods", liveness: spec(), answers: answers{Liveness: bad},
			moments: []moment{{29 * sec, up}, {30 * sec, livenessFailed}, {time.Hour, livenessFailed}}},
		{name: "dead after one failure", liveness: spec(failures(1)), answers: answers{Liveness: bad},
			moments: []moment{{9 * sec, up}, {10 * sec, livenessFailed}}},
		{name: "dead after the initial delay", liveness: spec(delay(60), failures(1)), answers: answers{Liveness: bad},
			moments: []moment{{59 * sec, up}, {60 * sec, livenessFailed}}},
		{name: "dead in the end", liveness: spec(), answers: answers{Liveness: until(time.Hour, good, bad)},
			moments: []moment{{time.Hour + 19*sec, up}, {time.Hour + 20*sec, livenessFailed}}},
		{name: "dead, and it stays so", liveness: spec(failures(1)), answers: answers{Liveness: until(15*sec, bad, good)},
			moments: []moment{{10 * sec, livenessFailed}, {time.Hour, livenessFailed}}},
		{name: "a short fit", liveness: spec(), answers: answers{Liveness: until(25*sec, bad, good)}, moments: []moment{{time.Hour, up}}},
		{name: "errors do not kill", liveness: spec(failures(1)),
			answers: answers{Liveness: func(time.Duration) (Result, string, error) { return Failure, "", errors.New("no runtime") }},
			moments: []moment{{time.Hour, up}}},

		{name: "started at once", startup: spec(), answers: answers{Startup: good}, moments: []moment{{0, up}}},
		{name: "started soon, whatever the period", startup: spec(), answers: answers{Startup: until(sec/2, bad, good)},
			moments: []moment{{sec / 2, idle}, {750 * time.Millisecond, up}}},
		{name: "started in the last period", startup: spec(), answers: answers{Startup: until(25*sec, bad, good)},
			moments: []moment{{29 * sec, idle}, {30 * sec, up}}},
		{name: "not started after three periods", startup: spec(), answers: answers{Startup: bad},
			moments: []moment{{29 * sec, idle}, {30 * sec, startupFailed}, {time.Hour, startupFailed}}},
		{name: "not started after one period", startup: spec(failures(1)), answers: answers{Startup: bad},
			moments: []moment{{9 * sec, idle}, {10 * sec, startupFailed}}},
		{name: "not started after delay and periods", startup: spec(delay(20), failures(2)), answers: answers{Startup: bad},
			moments: []moment{{39 * sec, idle}, {40 * sec, startupFailed}}},
		{name: "startup is forgotten", startup: spec(failures(1)), answers: answers{Startup: until(5*sec, good, bad)},
			moments: []moment{{time.Hour, up}}},
		{name: "a slow start", startup: spec(failures(30)), answers: answers{Startup: until(290*sec, bad, good)},
			moments: []moment{{289 * sec, idle}, {290 * sec, up}}},

		{name: "startup holds the others", startup: spec(failures(100)), liveness: spec(failures(1)), readiness: spec(),
			answers: answers{Startup: until(95*sec, bad, good), Liveness: until(95*sec, bad, good), Readiness: good},
			moments: []moment{{99 * sec, idle}, {100 * sec, up}, {time.Hour, up}}},
		{name: "readiness after startup", startup: spec(), readiness: spec(),
			answers: answers{Startup: until(5*sec, bad, good), Readiness: until(35*sec, bad, good)},
			moments: []moment{{5 * sec, idle}, {10 * sec, started}, {40 * sec, up}}},
		{name: "readiness's delay after startup", startup: spec(), readiness: spec(delay(60)),
			answers: answers{Startup: good, Readiness: good}, moments: []moment{{0, started}, {59 * sec, started}, {60 * sec, up}}},
		{name: "liveness after startup", startup: spec(), liveness: spec(failures(1), delay(3)),
			answers: answers{Startup: until(25*sec, bad, good), Liveness: bad}, moments: []moment{{29 * sec, idle}, {30 * sec, livenessFailed}}},
		{name: "startup fails, the others never run", startup: spec(), liveness: spec(), readiness: spec(),
			answers: answers{Startup: bad, Liveness: good, Readiness: good}, moments: []moment{{time.Hour, startupFailed}}},
		{name: "not ready and dead", liveness: spec(), readiness: spec(), answers: answers{Liveness: bad, Readiness: bad},
			moments: []moment{{time.Hour, Verdict{Started: true, Failed: Liveness}}}},
		{name: "dead and ready", liveness: spec(failures(1)), readiness: spec(), answers: answers{Liveness: bad, Readiness: good},
			moments: []moment{{10 * sec, livenessFailed}, {time.Hour, livenessFailed}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := watch(t, test.startup, test.liveness, test.readiness, test.answers)
				for _, m := range test.moments {
					if got := s.after(m.at - time.Since(s.began)); got != m.want {
						t.Errorf("at %v: %+v, want %+v", m.at, got, m.want)
					}
				}
			})
		})
	}
}

// TestWhenProbesAreDue: probes look at the start, then run once a period.
func TestWhenProbesAreDue(t *testing.T) {
	ms := time.Millisecond
	looks := []time.Duration{0, 250 * ms, 750 * ms, 1750 * ms, 3750 * ms, 7750 * ms}
	late := func(d time.Duration) []time.Duration {
		var out []time.Duration
		for _, at := range looks {
			out = append(out, at+d)
		}
		return out
	}
	tests := []struct {
		name    string
		kind    Kind
		probe   *corev1.Probe
		answer  func(time.Duration) (Result, string, error)
		elapsed time.Duration
		want    []time.Duration
	}{
		{name: "readiness, good", kind: Readiness, probe: spec(), answer: good, elapsed: 30 * sec,
			want: []time.Duration{0, 10 * sec, 20 * sec, 30 * sec}},
		{name: "readiness, bad", kind: Readiness, probe: spec(), answer: bad, elapsed: 30 * sec, want: append(late(0), 10*sec, 20*sec, 30*sec)},
		{name: "readiness, bad, later", kind: Readiness, probe: spec(delay(5)), answer: bad, elapsed: 30 * sec,
			want: append(late(5*sec), 15*sec, 25*sec)},
		{name: "readiness, bad, each second", kind: Readiness, probe: spec(period(1)), answer: bad, elapsed: 3 * sec,
			want: []time.Duration{0, 250 * ms, 750 * ms, sec, 2 * sec, 3 * sec}},
		{name: "startup, bad", kind: Startup, probe: spec(), answer: bad, elapsed: time.Hour, want: append(late(0), 10*sec, 20*sec, 30*sec)},
		{name: "startup, good", kind: Startup, probe: spec(), answer: good, elapsed: time.Hour, want: []time.Duration{0}},
		{name: "liveness, good", kind: Liveness, probe: spec(), answer: good, elapsed: 30 * sec,
			want: []time.Duration{10 * sec, 20 * sec, 30 * sec}},
		{name: "liveness, good, later", kind: Liveness, probe: spec(delay(5)), answer: good, elapsed: 30 * sec,
			want: []time.Duration{5 * sec, 15 * sec, 25 * sec}},
		{name: "liveness, bad", kind: Liveness, probe: spec(), answer: bad, elapsed: time.Hour,
			want: []time.Duration{10 * sec, 20 * sec, 30 * sec}},
		{name: "slower than its period", kind: Liveness, probe: spec(period(1)),
			answer: func(time.Duration) (Result, string, error) { time.Sleep(5 * sec / 2); return good(0) }, elapsed: 8 * sec,
			want: []time.Duration{sec, 3500 * ms, 6 * sec}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				probes := map[Kind]*corev1.Probe{test.kind: test.probe}
				s := watch(t, probes[Startup], probes[Liveness], probes[Readiness], answers{test.kind: test.answer})
				s.after(test.elapsed)
				if diff := cmp.Diff(test.want, s.times(test.kind)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestOnHold: the failed probe of a container that must be killed stops.
func TestOnHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watch(t, nil, spec(failures(1)), spec(), answers{Liveness: bad, Readiness: good})
		s.after(time.Minute)
		if got := len(s.times(Liveness)); got != 1 {
			t.Errorf("%d liveness probes", got)
		}
		if got := len(s.times(Readiness)); got != 7 {
			t.Errorf("%d readiness probes", got)
		}
		if s.changes != 2 {
			t.Errorf("%d calls of Changed", s.changes)
		}
	})
}

func TestEvents(t *testing.T) {
	failing := func(time.Duration) (Result, string, error) { return Failure, "cat: \x1b[31mno\nsuch file\n", nil }
	erring := func(time.Duration) (Result, string, error) { return Unknown, "", errors.New("no runtime") }
	warning := func(time.Duration) (Result, string, error) {
		return Warning, "Probe terminated redirects, Response body: x", nil
	}
	tests := []struct {
		name    string
		kind    Kind
		answer  func(time.Duration) (Result, string, error)
		elapsed time.Duration
		want    []string
		asked   int
	}{
		{name: "liveness fails", kind: Liveness, answer: failing, elapsed: 20 * sec,
			want: []string{"Unhealthy: Liveness probe failed: cat: [31mno such file",
				"Unhealthy: Liveness probe failed: cat: [31mno such file"}, asked: 2},
		{name: "readiness fails", kind: Readiness, answer: failing, elapsed: 10 * sec,
			want: []string{"Unhealthy: Readiness probe failed: cat: [31mno such file"}, asked: 7},
		{name: "startup fails", kind: Startup, answer: failing, elapsed: 10 * sec,
			want: []string{"Unhealthy: Startup probe failed: cat: [31mno such file"}, asked: 7},
		{name: "looks are quiet", kind: Readiness, answer: failing, elapsed: 9 * sec, asked: 6},
		{name: "an error", kind: Liveness, answer: erring, elapsed: 10 * sec,
			want: []string{"Unhealthy: Liveness probe errored and resulted in unknown state: no runtime"}, asked: attempts},
		{name: "a warning", kind: Liveness, answer: warning, elapsed: 10 * sec,
			want: []string{"ProbeWarning: Liveness probe warning: Probe terminated redirects, Response body: x"}, asked: 1},
		{name: "success", kind: Liveness, answer: good, elapsed: time.Hour, asked: 360},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				probes := map[Kind]*corev1.Probe{test.kind: spec()}
				s := watch(t, probes[Startup], probes[Liveness], probes[Readiness], answers{test.kind: test.answer})
				s.after(test.elapsed)
				if diff := cmp.Diff(test.want, s.events); diff != "" {
					t.Error(diff)
				}
				if got := len(s.times(test.kind)); got != test.asked {
					t.Errorf("asked %d times, want %d", got, test.asked)
				}
			})
		})
	}
}

// TestPaused: probes of a paused VM do not fail, however long the pause, and results across a pause do not count.
func TestPaused(t *testing.T) {
	pause := func(s *subject, now bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.paused = now; now {
			s.pauses++
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := watch(t, nil, spec(failures(1)), spec(failures(1)), answers{Liveness: until(15*sec, good, bad), Readiness: until(15*sec, good, bad)})
		s.after(14 * sec)
		pause(s, true)
		if got := s.after(time.Hour); got != (Verdict{Started: true, Ready: true}) {
			t.Errorf("paused: %+v", got)
		}
		if got := len(s.times(Liveness)) + len(s.times(Readiness)); got != 3 {
			t.Errorf("asked %d times", got)
		}
		pause(s, false)
		if got := s.after(10 * sec); got != (Verdict{Started: true, Failed: Liveness}) {
			t.Errorf("resumed: %+v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		slow := func(time.Duration) (Result, string, error) { time.Sleep(8 * sec); return bad(0) }
		s := watch(t, nil, spec(failures(1)), nil, answers{Liveness: until(15*sec, slow, good)})
		s.after(11 * sec)
		pause(s, true)
		s.after(sec)
		pause(s, false)
		if got := s.after(time.Hour); got != (Verdict{Started: true, Ready: true}) || len(s.events) > 0 {
			t.Errorf("paused and resumed within a probe: %+v, %v", got, s.events)
		}
	})
}

// TestQuiesce: a pod that ends is not killed for its liveness, and reports its readiness to the end.
func TestQuiesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watch(t, nil, spec(), spec(failures(1)), answers{Liveness: until(25*sec, good, bad), Readiness: until(25*sec, good, bad)})
		s.after(15 * sec)
		s.Quiesce()
		s.Quiesce()
		if got := s.after(time.Hour); got != (Verdict{Started: true}) {
			t.Errorf("%+v", got)
		}
		if got := len(s.times(Liveness)); got != 1 {
			t.Errorf("%d liveness probes", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := watch(t, spec(), nil, spec(), answers{Startup: bad, Readiness: good})
		s.after(15 * sec)
		s.Quiesce()
		if got := s.after(time.Hour); got != (Verdict{}) {
			t.Errorf("%+v", got)
		}
	})
}

// TestEnd: Run cancels running probes, waits for them, and ignores their results.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watch(t, spec(), spec(), spec(), answers{}) // they hang
		s.after(time.Minute)
		s.cancel()
		select {
		case <-s.ended:
		case <-time.After(time.Second):
			t.Error("Run did not end")
		}
		if len(s.events) > 0 || s.changes > 0 {
			t.Errorf("events %v, %d changes", s.events, s.changes)
		}
	})
}

// TestResumed: an earlier engine's verdict holds until the probes return another one. They start spread over their
// periods.
func TestResumed(t *testing.T) {
	up := Verdict{Started: true, Ready: true}
	tests := []struct {
		name                         string
		startup, liveness, readiness *corev1.Probe
		age                          time.Duration
		last                         *Verdict // nil: unknown
		answers                      answers
		atOnce, later                Verdict
	}{
		{name: "no probes", age: time.Hour, atOnce: up, later: up},
		{name: "was ready", readiness: spec(), age: time.Minute, last: &up, answers: answers{Readiness: good}, atOnce: up, later: up},
		{name: "was ready, is no more", readiness: spec(), age: time.Minute, last: &up, answers: answers{Readiness: bad}, atOnce: up,
			later: Verdict{Started: true}},
		{name: "was not ready", readiness: spec(), age: time.Minute, last: &Verdict{Started: true}, answers: answers{Readiness: good},
			atOnce: Verdict{Started: true}, later: up},
		{name: "had started", startup: spec(), age: time.Second, last: &up, answers: answers{Startup: bad}, atOnce: up, later: up},
		{name: "had not started", startup: spec(), age: time.Second, last: &Verdict{}, answers: answers{Startup: bad}, atOnce: Verdict{},
			later: Verdict{Failed: Startup}},
		{name: "had not started, does", startup: spec(), liveness: spec(), readiness: spec(), age: time.Second, last: &Verdict{},
			answers: answers{Startup: good, Liveness: good, Readiness: good}, atOnce: Verdict{}, later: up},
		{name: "must have started by now", startup: spec(), age: time.Minute, answers: answers{Startup: bad}, atOnce: up, later: up},
		{name: "must have started by now, with readiness", startup: spec(), readiness: spec(), age: time.Minute,
			answers: answers{Startup: bad, Readiness: good}, atOnce: Verdict{Started: true}, later: up},
		{name: "had not started long ago", startup: spec(), age: time.Hour, last: &Verdict{}, answers: answers{Startup: bad},
			atOnce: Verdict{}, later: Verdict{Failed: Startup}},
		{name: "had not started long ago, does", startup: spec(), readiness: spec(), age: time.Hour, last: &Verdict{},
			answers: answers{Startup: good, Readiness: good}, atOnce: Verdict{}, later: up},
		{name: "dead", liveness: spec(), age: time.Minute, last: &up, answers: answers{Liveness: bad}, atOnce: up,
			later: Verdict{Started: true, Ready: true, Failed: Liveness}},
		{name: "an earlier failure may be over", liveness: spec(), age: time.Minute,
			last: &Verdict{Started: true, Ready: true, Failed: Liveness}, answers: answers{Liveness: good}, atOnce: up, later: up},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := watch(t, test.startup, test.liveness, test.readiness, test.answers, func(o *Options) {
					o.Began, o.Resumed, o.Last = o.Began.Add(-test.age), true, test.last
				})
				if got := s.Verdict(); got != test.atOnce {
					t.Errorf("at once: %+v", got)
				}
				if got := s.after(45 * time.Second); got != test.later {
					t.Errorf("later: %+v", got)
				}
			})
		})
	}
}

// TestResumedIsSpread: a hundred adopted probes are not due together.
func TestResumedIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seconds := map[time.Duration]int{}
		for range 100 {
			s := watch(t, nil, spec(), nil, answers{Liveness: good}, func(o *Options) {
				o.Began, o.Resumed = o.Began.Add(-time.Hour), true
			})
			s.after(10 * time.Second)
			at := s.times(Liveness)
			if len(at) != 1 || at[0] >= 10*time.Second {
				t.Fatalf("asked at %v", at)
			}
			seconds[at[0].Truncate(time.Second)]++
			s.cancel()
		}
		if len(seconds) < 5 {
			t.Errorf("within a period: %v", seconds)
		}
	})
}

func TestKindsAndResultsHaveNames(t *testing.T) {
	names := strings.Join([]string{fmt.Sprint(Unknown), fmt.Sprint(Success), fmt.Sprint(Warning), fmt.Sprint(Failure), string(Startup)}, " ")
	if names != "unknown success warning failure Startup" {
		t.Error(names)
	}
}

// TestClockIsSet: later changes of the clock do not change when a probe is due, whatever clock the container's start
// came from.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tt := range map[string]struct{ began, delay, want time.Duration }{
		"at once":       {-time.Second, 0, 0},
		"later":         {-2 * time.Second, 10 * time.Second, 8 * time.Second},
		"long over":     {-time.Hour, 10 * time.Second, 0},
		"in the future": {time.Hour, 10 * time.Second, 10 * time.Second},
	} {
		due := first(now.Add(tt.began).Round(0), tt.delay, now)
		for _, by := range []time.Duration{0, time.Hour, -time.Hour} {
			if got := due.Sub(testclock.Set(now, by)); got != tt.want {
				t.Errorf("%s, by a clock set by %v: in %v", name, by, got)
			}
			if got := later(due.Add(time.Minute), testclock.Set(now, by)).Sub(now); got != tt.want+time.Minute {
				t.Errorf("%s, a minute later, by a clock set by %v: in %v", name, by, got)
			}
		}
	}
}
