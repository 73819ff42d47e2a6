package podapi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestProbeDefaults(t *testing.T) {
	defaulted := corev1.Probe{TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
	with := func(change func(*corev1.Probe)) *corev1.Probe {
		p := defaulted
		change(&p)
		return &p
	}
	for _, test := range []struct {
		name      string
		have      *corev1.Probe
		want      *corev1.Probe
		container func(*corev1.Container, *corev1.Probe)
	}{
		{name: "liveness", have: &corev1.Probe{}, want: &defaulted,
			container: func(c *corev1.Container, p *corev1.Probe) { c.LivenessProbe = p }},
		{name: "readiness", have: &corev1.Probe{}, want: &defaulted,
			container: func(c *corev1.Container, p *corev1.Probe) { c.ReadinessProbe = p }},
		{name: "startup", have: &corev1.Probe{}, want: &defaulted, container: func(c *corev1.Container, p *corev1.Probe) { c.StartupProbe = p }},
		{name: "given", have: &corev1.Probe{TimeoutSeconds: 2, PeriodSeconds: 3, SuccessThreshold: 4, FailureThreshold: 5,
			InitialDelaySeconds: 6},
			want: &corev1.Probe{TimeoutSeconds: 2, PeriodSeconds: 3, SuccessThreshold: 4, FailureThreshold: 5, InitialDelaySeconds: 6}},
		{name: "http", have: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(1)}}},
			want: with(func(p *corev1.Probe) {
				p.HTTPGet = &corev1.HTTPGetAction{Port: intstr.FromInt32(1), Path: "/", Scheme: "HTTP"}
			})},
		{name: "http, given", have: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/h", Scheme: "HTTPS"}}},
			want: with(func(p *corev1.Probe) { p.HTTPGet = &corev1.HTTPGetAction{Path: "/h", Scheme: "HTTPS"} })},
		{name: "grpc", have: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}},
			want: with(func(p *corev1.Probe) { p.GRPC = &corev1.GRPCAction{Port: 1, Service: new("")} })},
		{name: "grpc, given", have: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1, Service: new("s")}}},
			want: with(func(p *corev1.Probe) { p.GRPC = &corev1.GRPCAction{Port: 1, Service: new("s")} })},
	} {
		container := &corev1.Container{}
		if test.container == nil {
			test.container = func(c *corev1.Container, p *corev1.Probe) { c.LivenessProbe = p }
		}
		test.container(container, test.have)
		containerDefaults(container)
		if diff := cmp.Diff(test.want, test.have); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
	containerDefaults(&corev1.Container{}) // without any
}

// TestProbeValidation: probes are validated like in the API server, after its defaults.
func TestProbeValidation(t *testing.T) {
	exec := func(change ...func(*corev1.Probe)) *corev1.Probe {
		p := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		for _, change := range change {
			change(p)
		}
		return p
	}
	handler := func(h corev1.ProbeHandler) *corev1.Probe { return &corev1.Probe{ProbeHandler: h} }
	get := func(get corev1.HTTPGetAction) *corev1.Probe {
		if get.Port == (intstr.IntOrString{}) {
			get.Port = intstr.FromInt32(80)
		}
		return handler(corev1.ProbeHandler{HTTPGet: &get})
	}
	tcp := func(port intstr.IntOrString) *corev1.Probe {
		return handler(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}})
	}
	tests := []struct {
		name                         string
		liveness, readiness, startup *corev1.Probe
		want                         []string // "field: message"; empty for valid
	}{
		{name: "exec", liveness: exec(), readiness: exec(), startup: exec()},
		{name: "no command", liveness: handler(corev1.ProbeHandler{Exec: &corev1.ExecAction{}}),
			want: []string{"livenessProbe.exec.command: is required"}},
		{name: "no handler", readiness: &corev1.Probe{}, want: []string{"readinessProbe: names no handler"}},
		{name: "two handlers", startup: exec(func(p *corev1.Probe) { p.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(1)} }),
			want: []string{"startupProbe: names more than one handler"}},
		{name: "all handlers", startup: exec(func(p *corev1.Probe) {
			p.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}
			p.HTTPGet = &corev1.HTTPGetAction{Port: intstr.FromInt32(1)}
			p.GRPC = &corev1.GRPCAction{Port: 1}
		}), want: []string{"startupProbe: names more than one handler"}},

		{name: "negative delay", liveness: exec(func(p *corev1.Probe) { p.InitialDelaySeconds = -1 }),
			want: []string{"livenessProbe.initialDelaySeconds: -1 is negative"}},
		{name: "negative timeout", liveness: exec(func(p *corev1.Probe) { p.TimeoutSeconds = -1 }),
			want: []string{"livenessProbe.timeoutSeconds: -1 is negative"}},
		{name: "negative period", readiness: exec(func(p *corev1.Probe) { p.PeriodSeconds = -1 }),
			want: []string{"readinessProbe.periodSeconds: -1 is negative"}},
		{name: "negative failures", readiness: exec(func(p *corev1.Probe) { p.FailureThreshold = -1 }),
			want: []string{"readinessProbe.failureThreshold: -1 is negative"}},
		{name: "negative successes", readiness: exec(func(p *corev1.Probe) { p.SuccessThreshold = -1 }),
			want: []string{"readinessProbe.successThreshold: -1 is negative"}},
		{name: "successes of readiness", readiness: exec(func(p *corev1.Probe) { p.SuccessThreshold = 5 })},
		{name: "successes of liveness", liveness: exec(func(p *corev1.Probe) { p.SuccessThreshold = 2 }),
			want: []string{"livenessProbe.successThreshold: 2 is not 1"}},
		{name: "successes of startup", startup: exec(func(p *corev1.Probe) { p.SuccessThreshold = 2 }),
			want: []string{"startupProbe.successThreshold: 2 is not 1"}},
		{name: "grace of liveness", liveness: exec(func(p *corev1.Probe) { p.TerminationGracePeriodSeconds = new(int64(1)) })},
		{name: "grace of startup", startup: exec(func(p *corev1.Probe) { p.TerminationGracePeriodSeconds = new(int64(60)) })},
		{name: "grace of readiness", readiness: exec(func(p *corev1.Probe) { p.TerminationGracePeriodSeconds = new(int64(1)) }),
			want: []string{"readinessProbe.terminationGracePeriodSeconds: cannot be set for a readinessProbe"}},
		{name: "grace of 0", liveness: exec(func(p *corev1.Probe) { p.TerminationGracePeriodSeconds = new(int64(0)) }),
			want: []string{"livenessProbe.terminationGracePeriodSeconds: 0 is not more than 0"}},
		{name: "negative grace", startup: exec(func(p *corev1.Probe) { p.TerminationGracePeriodSeconds = new(int64(-1)) }),
			want: []string{"startupProbe.terminationGracePeriodSeconds: -1 is not more than 0"}},

		{name: "http", liveness: get(corev1.HTTPGetAction{})},
		{name: "https", liveness: get(corev1.HTTPGetAction{Scheme: "HTTPS", Host: "example.com", Path: "/h"})},
		{name: "http by name", liveness: get(corev1.HTTPGetAction{Port: intstr.FromString("web")})},
		{name: "scheme in small letters", liveness: get(corev1.HTTPGetAction{Scheme: "http"}),
			want: []string{`livenessProbe.httpGet.scheme: "http" is not one of [HTTP HTTPS]`}},
		{name: "another scheme", liveness: get(corev1.HTTPGetAction{Scheme: "FTP"}),
			want: []string{`livenessProbe.httpGet.scheme: "FTP" is not one of [HTTP HTTPS]`}},
		{name: "headers", liveness: get(corev1.HTTPGetAction{HTTPHeaders: []corev1.HTTPHeader{{Name: "X-Forwarded-For", Value: "1.2.3.4"},
			{Name: "Host", Value: ""}}})},
		{name: "a header that is none", liveness: get(corev1.HTTPGetAction{HTTPHeaders: []corev1.HTTPHeader{{Name: "Host"},
			{Name: "X-Forwarded-For:"}}}), want: []string{`livenessProbe.httpGet.httpHeaders[1].name: "X-Forwarded-For:"`}},
		{name: "a header with an underscore", liveness: get(corev1.HTTPGetAction{HTTPHeaders: []corev1.HTTPHeader{{Name: "X_Forwarded_For"}}}),
			want: []string{`livenessProbe.httpGet.httpHeaders[0].name: "X_Forwarded_For"`}},
		{name: "HTTP1", liveness: get(corev1.HTTPGetAction{Scheme: "HTTPS", Protocol: new(corev1.HTTPProtocolHTTP1)})},
		{name: "HTTP2", liveness: get(corev1.HTTPGetAction{Protocol: new(corev1.HTTPProtocolHTTP2)})},
		{name: "HTTP2 with TLS", liveness: get(corev1.HTTPGetAction{Scheme: "HTTPS", Protocol: new(corev1.HTTPProtocolHTTP2)}),
			want: []string{"livenessProbe.httpGet.protocol: HTTP2 is for the scheme HTTP only"}},
		{name: "HTTP3", liveness: get(corev1.HTTPGetAction{Protocol: new(corev1.HTTPProtocol("HTTP3"))}),
			want: []string{`livenessProbe.httpGet.protocol: "HTTP3" is not one of [HTTP1 HTTP2]`}},

		{name: "tcp", liveness: tcp(intstr.FromInt32(1)), readiness: tcp(intstr.FromInt32(65535)), startup: tcp(intstr.FromString("web"))},
		{name: "port 0", liveness: tcp(intstr.FromInt32(0)), want: []string{"livenessProbe.tcpSocket.port: 0 is not between 1 and 65535"}},
		{name: "port -1", liveness: tcp(intstr.FromInt32(-1)), want: []string{"livenessProbe.tcpSocket.port: -1 is not between"}},
		{name: "port 65536", liveness: tcp(intstr.FromInt32(65536)), want: []string{"livenessProbe.tcpSocket.port: 65536 is not between"}},
		{name: "port without a name", liveness: tcp(intstr.FromString("")), want: []string{`livenessProbe.tcpSocket.port: ""`}},
		{name: "port with a number's name", liveness: tcp(intstr.FromString("80")), want: []string{`livenessProbe.tcpSocket.port: "80"`}},
		{name: "port with a long name", liveness: tcp(intstr.FromString("a-name-too-long-for-a-port")),
			want: []string{`livenessProbe.tcpSocket.port: "a-name`}},

		{name: "grpc", liveness: handler(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1, Service: new("s"),
			Mode: new(corev1.GRPCProbeModeTLS)}})},
		{name: "grpc in plaintext", liveness: handler(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 65535,
			Mode: new(corev1.GRPCProbeModePlaintext)}})},
		{name: "grpc port 0", liveness: handler(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{}}),
			want: []string{"livenessProbe.grpc.port: 0 is not between 1 and 65535"}},
		{name: "grpc mode", liveness: handler(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1,
			Mode: new(corev1.GRPCProbeMode("mTLS"))}}), want: []string{`livenessProbe.grpc.mode: "mTLS" is not one of [Plaintext TLS]`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			container := &corev1.Container{LivenessProbe: test.liveness, ReadinessProbe: test.readiness, StartupProbe: test.startup}
			containerDefaults(container)
			var got []string
			checker{report: func(field, message string) { got = append(got, field+": "+message) }}.probes(container, "")
			if len(got) != len(test.want) {
				t.Fatalf("%d faults: %q, want %q", len(got), got, test.want)
			}
			for i, want := range test.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("fault %q, want %q", got[i], want)
				}
			}
		})
	}
}
