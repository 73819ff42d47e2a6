package podapi

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// probeDefaults sets the API server's defaults of a probe, which may be nil.
func probeDefaults(probe *corev1.Probe) {
	if probe == nil {
		return
	}
	setDefault(&probe.TimeoutSeconds, 1)
	setDefault(&probe.PeriodSeconds, 10)
	setDefault(&probe.SuccessThreshold, 1)
	setDefault(&probe.FailureThreshold, 3)
	httpGetDefaults(probe.HTTPGet)
	if probe.GRPC != nil && probe.GRPC.Service == nil {
		probe.GRPC.Service = new("")
	}
}

// httpGetDefaults sets the defaults of a request of a probe or hook, which may be nil.
func httpGetDefaults(get *corev1.HTTPGetAction) {
	if get != nil {
		setDefault(&get.Path, "/")
		setDefault(&get.Scheme, corev1.URISchemeHTTP)
	}
}

// probes checks a container's probes; at is its path.
func (c checker) probes(container *corev1.Container, at string) {
	for _, p := range []struct {
		field string
		probe *corev1.Probe
	}{{"livenessProbe", container.LivenessProbe}, {"readinessProbe", container.ReadinessProbe}, {"startupProbe", container.StartupProbe}} {
		if p.probe == nil {
			continue
		}
		c.probe(p.probe, at+p.field)
		if p.field != "readinessProbe" && p.probe.SuccessThreshold != 1 {
			c.fault(at+p.field+".successThreshold", "%d is not 1", p.probe.SuccessThreshold)
		}
		grace := p.probe.TerminationGracePeriodSeconds
		switch {
		case grace == nil:
		case p.field == "readinessProbe":
			c.fault(at+p.field+".terminationGracePeriodSeconds", "cannot be set for a readinessProbe")
		case *grace <= 0:
			c.fault(at+p.field+".terminationGracePeriodSeconds", "%d is not more than 0", *grace)
		}
	}
}

func (c checker) probe(probe *corev1.Probe, at string) {
	for field, value := range map[string]int32{
		"initialDelaySeconds": probe.InitialDelaySeconds, "timeoutSeconds": probe.TimeoutSeconds, "periodSeconds": probe.PeriodSeconds,
		"successThreshold": probe.SuccessThreshold, "failureThreshold": probe.FailureThreshold,
	} {
		if value < 0 {
			c.fault(at+"."+field, "%d is negative", value)
		}
	}
	handlers := 0
	if probe.Exec != nil {
		handlers++
		c.exec(probe.Exec, at+".exec")
	}
	if probe.HTTPGet != nil {
		handlers++
		c.httpGet(probe.HTTPGet, at+".httpGet")
	}
	if probe.TCPSocket != nil {
		handlers++
		c.portOrName(probe.TCPSocket.Port, at+".tcpSocket.port")
	}
	if probe.GRPC != nil {
		handlers++
		c.port(probe.GRPC.Port, at+".grpc.port")
		if mode := probe.GRPC.Mode; mode != nil {
			oneOf(c, at+".grpc.mode", *mode, corev1.GRPCProbeModePlaintext, corev1.GRPCProbeModeTLS)
		}
	}
	c.oneHandler(handlers, at)
}

// oneHandler reports a probe or hook without exactly one handler.
func (c checker) oneHandler(handlers int, at string) {
	switch {
	case handlers == 0:
		c.fault(at, "names no handler")
	case handlers > 1:
		c.fault(at, "names more than one handler")
	}
}

func (c checker) exec(exec *corev1.ExecAction, at string) {
	if len(exec.Command) == 0 {
		c.fault(at+".command", "is required")
	}
}

func (c checker) httpGet(get *corev1.HTTPGetAction, at string) {
	c.portOrName(get.Port, at+".port")
	oneOf(c, at+".scheme", get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
	for i, header := range get.HTTPHeaders {
		for _, message := range validation.IsHTTPHeaderName(header.Name) {
			c.fault(fmt.Sprintf("%s.httpHeaders[%d].name", at, i), "%q: %s", header.Name, message)
		}
	}
	if get.Protocol == nil {
		return
	}
	oneOf(c, at+".protocol", *get.Protocol, corev1.HTTPProtocolHTTP1, corev1.HTTPProtocolHTTP2)
	if *get.Protocol == corev1.HTTPProtocolHTTP2 && get.Scheme != corev1.URISchemeHTTP {
		c.fault(at+".protocol", "HTTP2 is for the scheme HTTP only")
	}
}

// portOrName checks a port given by number or by a container port's name.
func (c checker) portOrName(port intstr.IntOrString, at string) {
	if port.Type == intstr.Int {
		c.port(port.IntVal, at)
		return
	}
	if messages := validation.IsValidPortName(port.StrVal); len(messages) > 0 {
		c.fault(at, "%q: %s", port.StrVal, strings.Join(messages, "; "))
	}
}

func (c checker) port(port int32, at string) {
	if port < 1 || port > 65535 {
		c.fault(at, "%d is not between 1 and 65535", port)
	}
}
