package config

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// masterService is the name of the API server's Service in the namespace default. Every pod gets its variables.
const masterService = "kubernetes"

// serviceVariables returns a kubelet's variables for Services, in the order of the Services' names. They cover the
// Services of the pod's namespace, unless enableServiceLinks is false, and the API server's. Services without a cluster
// IP have none.
func serviceVariables(pod *corev1.Pod, all []*corev1.Service) (out []variable) {
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	chosen := map[string]*corev1.Service{}
	for _, s := range all {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		master := s.Namespace == metav1.NamespaceDefault && s.Name == masterService
		own := s.Namespace == pod.Namespace && links
		if own || master && chosen[s.Name] == nil {
			chosen[s.Name] = s
		}
	}
	list := make([]*corev1.Service, 0, len(chosen))
	for _, s := range chosen {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *corev1.Service) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range list {
		out = append(out, variablesOf(s)...)
	}
	return out
}

// variablesOf returns the variables of one Service: NAME_SERVICE_HOST and so on, and the variables of Docker's links.
func variablesOf(s *corev1.Service) (out []variable) {
	prefix, ip := variableName(s.Name), s.Spec.ClusterIP
	add := func(name, value string) { out = append(out, variable{prefix + name, value}) }
	add("_SERVICE_HOST", ip)
	add("_SERVICE_PORT", strconv.Itoa(int(s.Spec.Ports[0].Port)))
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			add("_SERVICE_PORT_"+variableName(p.Name), strconv.Itoa(int(p.Port)))
		}
	}
	for i, p := range s.Spec.Ports {
		protocol := strings.ToLower(string(cmp.Or(p.Protocol, corev1.ProtocolTCP)))
		port := strconv.Itoa(int(p.Port))
		url := protocol + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			add("_PORT", url)
		}
		one := "_PORT_" + port + "_" + strings.ToUpper(protocol)
		add(one, url)
		add(one+"_PROTO", protocol)
		add(one+"_PORT", port)
		add(one+"_ADDR", ip)
	}
	return out
}

// variableName returns the form of a Service's or port's name in the name of a variable.
func variableName(name string) string { return strings.ReplaceAll(strings.ToUpper(name), "-", "_") }
