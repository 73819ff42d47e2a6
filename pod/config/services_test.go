package config

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

func service(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports},
	}
}

// TestServiceVariables: Services have the variables that a kubelet makes. A container's own variables win, and may
// refer to them.
func TestServiceVariables(t *testing.T) {
	t.Parallel()
	api := service("default", "kubernetes", "10.0.0.1", corev1.ServicePort{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP})
	all := []*corev1.Service{
		service("own", "my-db", "fd00::5", corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP}, corev1.ServicePort{Name: "a-b", Port: 9}),
		service("other", "far", "10.0.0.9", corev1.ServicePort{Port: 1}),
		service("own", "headless", "None", corev1.ServicePort{Port: 1}), service("own", "external", "", corev1.ServicePort{Port: 1}),
		api,
	}
	const master = "KUBERNETES_SERVICE_HOST=10.0.0.1 KUBERNETES_SERVICE_PORT=443 KUBERNETES_SERVICE_PORT_HTTPS=443 " +
		"KUBERNETES_PORT=tcp://10.0.0.1:443 KUBERNETES_PORT_443_TCP=tcp://10.0.0.1:443 KUBERNETES_PORT_443_TCP_PROTO=tcp " +
		"KUBERNETES_PORT_443_TCP_PORT=443 KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1"
	const db = "MY_DB_SERVICE_HOST=fd00::5 MY_DB_SERVICE_PORT=53 MY_DB_SERVICE_PORT_A_B=9 MY_DB_PORT=udp://[fd00::5]:53 " +
		"MY_DB_PORT_53_UDP=udp://[fd00::5]:53 MY_DB_PORT_53_UDP_PROTO=udp MY_DB_PORT_53_UDP_PORT=53 MY_DB_PORT_53_UDP_ADDR=fd00::5 " +
		"MY_DB_PORT_9_TCP=tcp://[fd00::5]:9 MY_DB_PORT_9_TCP_PROTO=tcp MY_DB_PORT_9_TCP_PORT=9 MY_DB_PORT_9_TCP_ADDR=fd00::5"
	own := service("own", "kubernetes", "10.0.0.2", corev1.ServicePort{Port: 80})
	failed := errors.New("unread")
	for _, tt := range []struct {
		name     string
		links    *bool
		services []*corev1.Service
		env      []corev1.EnvVar
		err      error
		want     string
	}{
		{name: "all", services: all, want: master + " " + db},
		{name: "no links", links: new(bool), services: all, want: master},
		{name: "the namespace's own of that name", services: []*corev1.Service{own, api},
			want: "KUBERNETES_SERVICE_HOST=10.0.0.2 KUBERNETES_SERVICE_PORT=80 KUBERNETES_PORT=tcp://10.0.0.2:80 " +
				"KUBERNETES_PORT_80_TCP=tcp://10.0.0.2:80 KUBERNETES_PORT_80_TCP_PROTO=tcp KUBERNETES_PORT_80_TCP_PORT=80 " +
				"KUBERNETES_PORT_80_TCP_ADDR=10.0.0.2"},
		{name: "its own variables", links: new(bool), services: all,
			env:  []corev1.EnvVar{value("KUBERNETES_SERVICE_HOST", "mine"), value("URL", "$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)")},
			want: "KUBERNETES_SERVICE_HOST=mine URL=mine:443 " + strings.TrimPrefix(master, "KUBERNETES_SERVICE_HOST=10.0.0.1 ")},
		{name: "unread", err: failed},
		{name: "none"},
	} {
		p := testpod.New("Never", "main")
		p.Namespace, p.Spec.EnableServiceLinks, p.Spec.Containers[0].Env = "own", tt.links, tt.env
		o := &Options{Pod: p, Services: func(context.Context) ([]*corev1.Service, error) { return tt.services, tt.err }}
		got, err := resolveEnvironment(t.Context(), o, &p.Spec.Containers[0], Launch{})
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil {
			continue
		}
		var words []string
		for _, v := range got.out {
			words = append(words, v.name+"="+v.value)
		}
		if text := strings.Join(words, " "); text != tt.want {
			t.Errorf("%s:\n%s, want\n%s", tt.name, text, tt.want)
		}
	}
}
