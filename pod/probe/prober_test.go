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
)

// spec is a probe in short: the API's defaults, changed.
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

// subject is a container whose probes answer as the test says.
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

// until answers one way before a time, and another way from then on.
func until(limit time.Duration, first, then func(time.Duration) (Result, string, error)) func(time.Duration) (Result, string, error) {
	return func(at time.Duration) (Result, string, error) {
		if at < limit {
			return first(at)
		}
		return then(at)
	}
}

// watch probes a container with these probes, within a synctest bubble.
func watch(t *testing.T, startup, liveness, readiness *corev1.Probe, answers map[Kind]func(time.Duration) (Result, string, error), change ...func(*Options)) *subject {
	t.Helper()
	s := &subject{began: time.Now(), answers: answers, asked: map[Kind][]time.Duration{}, ended: make(chan struct{})}
	o := Options{
		Container: &corev1.Container{Name: "c", StartupProbe: startup, LivenessProbe: liveness, ReadinessProbe: readiness},
		Began:     s.began,
		Ask: func(ctx context.Context, probe *corev1.Probe) (Result, string, error) {
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

// TestVerdict follows a container's probes: what is known at a time.
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
		{"no probes", nil, nil, nil, nil, []moment{{0, up}, {time.Hour, up}}},

		{"ready at once", nil, nil, spec(), answers{Readiness: good}, []moment{{0, up}, {time.Hour, up}}},
		{"readiness begins false", nil, nil, spec(delay(5)), answers{Readiness: good}, []moment{{0, started}, {5*sec - 1, started}, {5 * sec, up}}},
		{"never ready", nil, nil, spec(), answers{Readiness: bad}, []moment{{0, started}, {time.Hour, started}}},
		{"ready soon after the start, whatever the period", nil, nil, spec(), answers{Readiness: until(sec/2, bad, good)}, []moment{{0, started}, {sec / 2, started}, {750 * time.Millisecond, up}}},
		{"ready after a while", nil, nil, spec(), answers{Readiness: until(25*sec, bad, good)}, []moment{{25 * sec, started}, {30 * sec, up}}},
		{"readiness goes after three failures", nil, nil, spec(), answers{Readiness: until(15*sec, good, bad)}, []moment{{15 * sec, up}, {39 * sec, up}, {40 * sec, started}}},
		{"readiness goes after one failure", nil, nil, spec(failures(1)), answers{Readiness: until(15*sec, good, bad)}, []moment{{19 * sec, up}, {20 * sec, started}}},
		{"readiness comes back", nil, nil, spec(failures(1)), answers{Readiness: until(15*sec, good, until(35*sec, bad, good))}, []moment{{20 * sec, started}, {39 * sec, started}, {40 * sec, up}}},
		{"readiness comes back after two successes", nil, nil, spec(failures(1), success(2)), answers{Readiness: until(15*sec, good, until(35*sec, bad, good))}, []moment{{0, started}, {10 * sec, up}, {20 * sec, started}, {40 * sec, started}, {50 * sec, up}}},
		{"failures that are not in a row", nil, nil, spec(failures(2)), answers{Readiness: func(at time.Duration) (Result, string, error) {
			if at > 5*sec && int(at/sec)%20 == 10 {
				return bad(at)
			}
			return good(at)
		}}, []moment{{0, up}, {time.Hour, up}}},
		{"a warning is a success", nil, nil, spec(), answers{Readiness: func(time.Duration) (Result, string, error) { return Warning, "elsewhere", nil }}, []moment{{0, up}}},
		{"errors tell nothing", nil, nil, spec(failures(1)), answers{Readiness: until(5*sec, good, func(time.Duration) (Result, string, error) { return Unknown, "", errors.New("no runtime") })}, []moment{{time.Hour, up}}},

		{"alive", nil, spec(), nil, answers{Liveness: good}, []moment{{time.Hour, up}}},
		{"dead after three periods", nil, spec(), nil, answers{Liveness: bad}, []moment{{29 * sec, up}, {30 * sec, livenessFailed}, {time.Hour, livenessFailed}}},
		{"dead after one failure", nil, spec(failures(1)), nil, answers{Liveness: bad}, []moment{{9 * sec, up}, {10 * sec, livenessFailed}}},
		{"dead after the initial delay", nil, spec(delay(60), failures(1)), nil, answers{Liveness: bad}, []moment{{59 * sec, up}, {60 * sec, livenessFailed}}},
		{"dead in the end", nil, spec(), nil, answers{Liveness: until(time.Hour, good, bad)}, []moment{{time.Hour + 19*sec, up}, {time.Hour + 20*sec, livenessFailed}}},
		{"dead, and it stays so", nil, spec(failures(1)), nil, answers{Liveness: until(15*sec, bad, good)}, []moment{{10 * sec, livenessFailed}, {time.Hour, livenessFailed}}},
		{"a short fit", nil, spec(), nil, answers{Liveness: until(25*sec, bad, good)}, []moment{{time.Hour, up}}},
		{"errors kill nobody", nil, spec(failures(1)), nil, answers{Liveness: func(time.Duration) (Result, string, error) { return Failure, "", errors.New("no runtime") }}, []moment{{time.Hour, up}}},

		{"started at once", spec(), nil, nil, answers{Startup: good}, []moment{{0, up}}},
		{"started soon, whatever the period", spec(), nil, nil, answers{Startup: until(sec/2, bad, good)}, []moment{{sec / 2, idle}, {750 * time.Millisecond, up}}},
		{"started in the last period", spec(), nil, nil, answers{Startup: until(25*sec, bad, good)}, []moment{{29 * sec, idle}, {30 * sec, up}}},
		{"not started after three periods", spec(), nil, nil, answers{Startup: bad}, []moment{{29 * sec, idle}, {30 * sec, startupFailed}, {time.Hour, startupFailed}}},
		{"not started after one period", spec(failures(1)), nil, nil, answers{Startup: bad}, []moment{{9 * sec, idle}, {10 * sec, startupFailed}}},
		{"not started after delay and periods", spec(delay(20), failures(2)), nil, nil, answers{Startup: bad}, []moment{{39 * sec, idle}, {40 * sec, startupFailed}}},
		{"startup is forgotten", spec(failures(1)), nil, nil, answers{Startup: until(5*sec, good, bad)}, []moment{{time.Hour, up}}},
		{"a slow start", spec(failures(30)), nil, nil, answers{Startup: until(290*sec, bad, good)}, []moment{{289 * sec, idle}, {290 * sec, up}}},

		{"startup holds the others", spec(failures(100)), spec(failures(1)), spec(), answers{Startup: until(95*sec, bad, good), Liveness: until(95*sec, bad, good), Readiness: good}, []moment{{99 * sec, idle}, {100 * sec, up}, {time.Hour, up}}},
		{"readiness after startup", spec(), nil, spec(), answers{Startup: until(5*sec, bad, good), Readiness: until(35*sec, bad, good)}, []moment{{5 * sec, idle}, {10 * sec, started}, {40 * sec, up}}},
		{"readiness's delay after startup", spec(), nil, spec(delay(60)), answers{Startup: good, Readiness: good}, []moment{{0, started}, {59 * sec, started}, {60 * sec, up}}},
		{"liveness after startup", spec(), spec(failures(1), delay(3)), nil, answers{Startup: until(25*sec, bad, good), Liveness: bad}, []moment{{29 * sec, idle}, {30 * sec, livenessFailed}}},
		{"startup fails, the others never asked", spec(), spec(), spec(), answers{Startup: bad, Liveness: good, Readiness: good}, []moment{{time.Hour, startupFailed}}},
		{"not ready and dead", nil, spec(), spec(), answers{Liveness: bad, Readiness: bad}, []moment{{time.Hour, Verdict{Started: true, Failed: Liveness}}}},
		{"dead and ready", nil, spec(failures(1)), spec(), answers{Liveness: bad, Readiness: good}, []moment{{10 * sec, livenessFailed}, {time.Hour, livenessFailed}}},
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

// TestWhenProbesAreDue: looks at the start, then once a period.
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
		{"readiness, good", Readiness, spec(), good, 30 * sec, []time.Duration{0, 10 * sec, 20 * sec, 30 * sec}},
		{"readiness, bad", Readiness, spec(), bad, 30 * sec, append(late(0), 10*sec, 20*sec, 30*sec)},
		{"readiness, bad, later", Readiness, spec(delay(5)), bad, 30 * sec, append(late(5*sec), 15*sec, 25*sec)},
		{"readiness, bad, each second", Readiness, spec(period(1)), bad, 3 * sec, []time.Duration{0, 250 * ms, 750 * ms, sec, 2 * sec, 3 * sec}},
		{"startup, bad", Startup, spec(), bad, time.Hour, append(late(0), 10*sec, 20*sec, 30*sec)},
		{"startup, good", Startup, spec(), good, time.Hour, []time.Duration{0}},
		{"liveness, good", Liveness, spec(), good, 30 * sec, []time.Duration{10 * sec, 20 * sec, 30 * sec}},
		{"liveness, good, later", Liveness, spec(delay(5)), good, 30 * sec, []time.Duration{5 * sec, 15 * sec, 25 * sec}},
		{"liveness, bad", Liveness, spec(), bad, time.Hour, []time.Duration{10 * sec, 20 * sec, 30 * sec}},
		{"slower than its period", Liveness, spec(period(1)), func(time.Duration) (Result, string, error) { time.Sleep(5 * sec / 2); return good(0) }, 8 * sec,
			[]time.Duration{sec, 3500 * ms, 6 * sec}},
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

// TestOnHold: a container that is to be killed is asked no more, by the probe
// that has failed.
func TestOnHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watch(t, nil, spec(failures(1)), spec(), answers{Liveness: bad, Readiness: good})
		s.after(time.Minute)
		if got := len(s.times(Liveness)); got != 1 {
			t.Errorf("asked %d times whether it lives", got)
		}
		if got := len(s.times(Readiness)); got != 7 {
			t.Errorf("asked %d times whether it is ready", got)
		}
		if s.changes != 2 {
			t.Errorf("%d changes told", s.changes)
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
		{"liveness fails", Liveness, failing, 20 * sec, []string{"Unhealthy: Liveness probe failed: cat: [31mno such file", "Unhealthy: Liveness probe failed: cat: [31mno such file"}, 2},
		{"readiness fails", Readiness, failing, 10 * sec, []string{"Unhealthy: Readiness probe failed: cat: [31mno such file"}, 7},
		{"startup fails", Startup, failing, 10 * sec, []string{"Unhealthy: Startup probe failed: cat: [31mno such file"}, 7},
		{"looks are quiet", Readiness, failing, 9 * sec, nil, 6},
		{"an error", Liveness, erring, 10 * sec, []string{"Unhealthy: Liveness probe errored and resulted in unknown state: no runtime"}, attempts},
		{"a warning", Liveness, warning, 10 * sec, []string{"ProbeWarning: Liveness probe warning: Probe terminated redirects, Response body: x"}, 1},
		{"success", Liveness, good, time.Hour, nil, 360},
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

// TestPaused: a machine that stands still fails nothing, however long it does,
// and what it says across that does not count.
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

// TestQuiesce: a pod that ends is not killed for its liveness, and tells its
// readiness to the last.
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
			t.Errorf("asked %d times whether it lives", got)
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

// TestEnd: Run's end waits for a probe under way, which ends with it, and tells
// nothing of it.
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

// TestResumed: what was known before the engine was replaced holds until the
// probes say otherwise, and they begin spread over their periods.
func TestResumed(t *testing.T) {
	up := Verdict{Started: true, Ready: true}
	tests := []struct {
		name                         string
		startup, liveness, readiness *corev1.Probe
		age                          time.Duration
		last                         *Verdict // nil: nothing is known
		answers                      answers
		atOnce, later                Verdict
	}{
		{"no probes", nil, nil, nil, time.Hour, nil, nil, up, up},
		{"was ready", nil, nil, spec(), time.Minute, &up, answers{Readiness: good}, up, up},
		{"was ready, is no more", nil, nil, spec(), time.Minute, &up, answers{Readiness: bad}, up, Verdict{Started: true}},
		{"was not ready", nil, nil, spec(), time.Minute, &Verdict{Started: true}, answers{Readiness: good}, Verdict{Started: true}, up},
		{"had started", spec(), nil, nil, time.Second, &up, answers{Startup: bad}, up, up},
		{"had not started", spec(), nil, nil, time.Second, &Verdict{}, answers{Startup: bad}, Verdict{}, Verdict{Failed: Startup}},
		{"had not started, does", spec(), spec(), spec(), time.Second, &Verdict{}, answers{Startup: good, Liveness: good, Readiness: good}, Verdict{}, up},
		{"must have started by now", spec(), nil, nil, time.Minute, nil, answers{Startup: bad}, up, up},
		{"must have started by now, with readiness", spec(), nil, spec(), time.Minute, nil, answers{Startup: bad, Readiness: good}, Verdict{Started: true}, up},
		{"had not started long ago", spec(), nil, nil, time.Hour, &Verdict{}, answers{Startup: bad}, Verdict{}, Verdict{Failed: Startup}},
		{"had not started long ago, does", spec(), nil, spec(), time.Hour, &Verdict{}, answers{Startup: good, Readiness: good}, Verdict{}, up},
		{"dead", nil, spec(), nil, time.Minute, &up, answers{Liveness: bad}, up, Verdict{Started: true, Ready: true, Failed: Liveness}},
		{"what failed then may be well", nil, spec(), nil, time.Minute, &Verdict{Started: true, Ready: true, Failed: Liveness}, answers{Liveness: good}, up, up},
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

// TestResumedIsSpread: a hundred probes that are taken over are not due at once.
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
