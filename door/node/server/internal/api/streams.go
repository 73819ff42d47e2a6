package api

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// wants reports whether a query sets a boolean parameter.
func wants(q url.Values, name string) bool { return q.Get(name) == "1" || q.Get(name) == "true" }

func (s *Server) exec(w http.ResponseWriter, r *http.Request) error {
	id, err := s.container(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	tty := wants(q, corev1.ExecTTYParam)
	return s.streams.Exec(w, r, &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: q[corev1.ExecCommandParam], Tty: tty,
		Stdin: wants(q, corev1.ExecStdinParam), Stdout: wants(q, corev1.ExecStdoutParam),
		Stderr: wants(q, corev1.ExecStderrParam) && !tty,
	})
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) error {
	id, err := s.container(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	tty := wants(q, corev1.ExecTTYParam)
	return s.streams.Attach(w, r, &runtimeapi.AttachRequest{
		ContainerId: id, Tty: tty, Stdin: wants(q, corev1.ExecStdinParam), Stdout: wants(q, corev1.ExecStdoutParam),
		Stderr: wants(q, corev1.ExecStderrParam) && !tty,
	})
}

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) error {
	p, err := s.pod(r)
	if err != nil {
		return err
	}
	sandbox := p.Sandbox()
	if sandbox == "" {
		return fail(http.StatusNotFound, "pod %s is not running", p.Key())
	}
	what := &runtimeapi.PortForwardRequest{PodSandboxId: sandbox}
	for _, list := range r.URL.Query()["port"] {
		for text := range strings.SplitSeq(list, ",") { // an API server joins the ports of a WebSocket with commas
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil || port == 0 {
				return fail(http.StatusBadRequest, "invalid port %q", text)
			}
			what.Port = append(what.Port, int32(port))
		}
	}
	return s.streams.PortForward(w, r, what)
}
