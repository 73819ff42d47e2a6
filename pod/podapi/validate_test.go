package podapi

import (
	"errors"
	"strings"
	"testing"
)

// longName is a domain name of n characters.
func longName(n int) string {
	return strings.Repeat("a.", n/2)[:n-1] + "a"
}

func TestValidate(t *testing.T) {
	container := func(fields string) string { return head + "    " + fields + "\n" }
	pod := func(fields string) string { return head + "  " + fields + "\n" }
	list := func(n int, word string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(word+", ", n), ", ") + "]"
	}
	tests := []struct {
		name, text, want string // want empty: valid
	}{
		{"hostname", pod("hostname: own"), ""},
		{"hostname of two labels", pod("hostname: own.name"), "spec.hostname:"},
		{"subdomain", pod("subdomain: sub"), ""},
		{"subdomain of two labels", pod("subdomain: a.b"), "spec.subdomain:"},
		{"FQDN", pod("setHostnameAsFQDN: true"), ""},
		{"override", pod("hostnameOverride: a.b.c"), ""},
		{"override with capitals", pod("hostnameOverride: A"), "spec.hostnameOverride:"},
		{"empty override", pod(`hostnameOverride: ""`), "spec.hostnameOverride: is required"},
		{"override of 64", pod("hostnameOverride: " + longName(64)), ""},
		{"override of 65", pod("hostnameOverride: " + longName(65)), "no more than 64"},
		{"override and FQDN", pod("hostnameOverride: a\n  setHostnameAsFQDN: true"), "cannot be together with setHostnameAsFQDN"},
		{"aliases", pod("hostAliases: [{ip: 10.0.0.1, hostnames: [a, b.c]}, {ip: '::1'}]"), ""},
		{"alias without address", pod("hostAliases: [{hostnames: [a]}]"), "spec.hostAliases[0].ip:"},
		{"alias of no address", pod("hostAliases: [{ip: localhost}]"), "spec.hostAliases[0].ip:"},
		{"alias with a bad name", pod("hostAliases: [{ip: 10.0.0.1, hostnames: [a_b]}]"), "spec.hostAliases[0].hostnames[0]:"},

		{"no policy", pod("dnsConfig: {searches: [a.b]}"), ""},
		{"None", pod("dnsPolicy: None\n  dnsConfig: {nameservers: [10.0.0.1]}"), ""},
		{"None without servers", pod("dnsPolicy: None"), "at least one DNS nameserver"},
		{"None with searches alone", pod("dnsPolicy: None\n  dnsConfig: {searches: [a]}"), "at least one DNS nameserver"},
		{"unknown policy", pod("dnsPolicy: Some"), "spec.dnsPolicy"},
		{"three servers", pod("dnsConfig: {nameservers: [10.0.0.1, 10.0.0.2, '2001:db8::1']}"), ""},
		{"four servers", pod("dnsConfig: {nameservers: " + list(4, "10.0.0.1") + "}"), "more than 3 nameservers"},
		{"a server by name", pod("dnsConfig: {nameservers: [dns.example]}"), "spec.dnsConfig.nameservers[0]:"},
		{"32 searches", pod("dnsConfig: {searches: " + list(32, "a.b") + "}"), ""},
		{"33 searches", pod("dnsConfig: {searches: " + list(33, "a.b") + "}"), "more than 32 search paths"},
		{"searches of 2048", pod("dnsConfig: {searches: [" + strings.Repeat(longName(240)+", ", 8) + longName(120) + "]}"), ""},
		{"searches of 2049", pod("dnsConfig: {searches: [" + strings.Repeat(longName(240)+", ", 8) + longName(121) + "]}"), "more than 2048 characters"},
		{"odd searches", pod("dnsConfig: {searches: [., _srv.a., a_b]}"), ""},
		{"bad search", pod("dnsConfig: {searches: ['a b']}"), "spec.dnsConfig.searches[0]:"},
		{"options", pod("dnsConfig: {options: [{name: ndots, value: '2'}, {name: edns0}]}"), ""},
		{"nameless option", pod("dnsConfig: {options: [{value: '2'}]}"), "spec.dnsConfig.options[0].name:"},
		{"option of two lines", pod(`dnsConfig: {options: [{name: "a\nnameserver 1.2.3.4"}]}`), "spec.dnsConfig.options[0]"},

		{"privileged", container("securityContext: {privileged: true}"), ""},
		{"privileged without escalation", container("securityContext: {privileged: true, allowPrivilegeEscalation: false}"), "together with privileged"},
		{"administrator without escalation", container("securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}, allowPrivilegeEscalation: false}"), "SYS_ADMIN"},
		{"user out of range", container("securityContext: {runAsUser: -1}"), "runAsUser: -1 is out of range"},
		{"largest user", container("securityContext: {runAsUser: 2147483647}"), ""},
		{"group out of range", pod("securityContext: {runAsGroup: 2147483648}"), "runAsGroup"},
		{"groups", pod("securityContext: {supplementalGroups: [1, -2]}"), "supplementalGroups[1]"},
		{"strict groups", pod("securityContext: {supplementalGroupsPolicy: Strict}"), ""},
		{"other groups", pod("securityContext: {supplementalGroupsPolicy: Loose}"), "supplementalGroupsPolicy"},
		{"profile", pod("securityContext: {seccompProfile: {type: Localhost, localhostProfile: a/b.json}}"), ""},
		{"profile without file", container("securityContext: {seccompProfile: {type: Localhost}}"), "must be set when type is Localhost"},
		{"profile outside", pod("securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../b.json}}"), "is not a path below"},
		{"profile outside and back", pod("securityContext: {seccompProfile: {type: Localhost, localhostProfile: a/../b.json}}"), "is not a path below"},
		{"absolute profile", pod("securityContext: {seccompProfile: {type: Localhost, localhostProfile: /etc/passwd}}"), "is not a path below"},
		{"file of a default", pod("securityContext: {seccompProfile: {type: RuntimeDefault, localhostProfile: a}}"), "only be set when type is Localhost"},
		{"profile without type", container("securityContext: {seccompProfile: {localhostProfile: a}}"), "type"},
		{"AppArmor unconfined", container("securityContext: {appArmorProfile: {type: Unconfined}}"), ""},
		{"AppArmor default", container("securityContext: {appArmorProfile: {type: RuntimeDefault}}"), "appArmorProfile.type: RuntimeDefault is not honoured"},
		{"masked", container("securityContext: {procMount: Default}"), ""},
		{"unmasked", container("securityContext: {procMount: Unmasked}") + "  hostUsers: false\n", ""},
		{"unmasked with the host's users", container("securityContext: {procMount: Unmasked}"), "hostUsers must be false"},
		{"half masked", container("securityContext: {procMount: Half}"), "procMount"},
		{"SELinux", pod("securityContext: {seLinuxOptions: {level: s0}}"), "seLinuxOptions: is not honoured: the guest loads no SELinux policy"},
		{"sysctl twice", pod("securityContext: {sysctls: [{name: a.b, value: '1'}, {name: a.b, value: '2'}]}"), "there twice"},

		{"huge pages", container("resources: {limits: {hugepages-2Mi: 4Mi, memory: 8Mi}}"), ""},
		{"huge pages alone", container("resources: {limits: {hugepages-2Mi: 4Mi}}"), "require cpu or memory"},
		{"half a huge page", container("resources: {limits: {hugepages-2Mi: 3Mi, memory: 8Mi}}"), "no multiple"},
		{"fewer huge pages", container("resources: {limits: {hugepages-2Mi: 4Mi, memory: 8Mi}, requests: {hugepages-2Mi: 2Mi}}"), "must equal the limit"},
		{"huge pages requested alone", container("resources: {requests: {hugepages-2Mi: 2Mi, cpu: 1}}"), "hugepages-2Mi: must be set"},
		{"larger huge pages", container("resources: {limits: {hugepages-1Gi: 1Gi, memory: 8Mi}}"), "hugepages-1Gi: is not honoured"},
		{"storage", container("resources: {limits: {ephemeral-storage: 1Gi}, requests: {ephemeral-storage: 1Mi}}"), ""},
		{"pod's resources", pod("resources: {limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 1}}"), ""},
		{"pod's requests below its containers'", container("resources: {requests: {cpu: 2}}") + "  resources: {requests: {cpu: 1}}\n", "aggregate container requests of 2"},
		{"a container's limit above the pod's", container("resources: {limits: {memory: 2Gi}}") + "  resources: {limits: {memory: 1Gi}, requests: {memory: 2Gi}}\n", "less than or equal to the pod's limit of 1Gi"},
		{"negative overhead", pod("overhead: {cpu: -1}"), "spec.overhead.cpu: -1 is negative"},
		{"resize", container("resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]"), ""},
		{"resize of storage", container("resizePolicy: [{resourceName: ephemeral-storage, restartPolicy: NotRequired}]"), "resizePolicy[0].resourceName"},
		{"resize twice", container("resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]"), "there twice"},
		{"restart to resize, and never", container("resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]") + "  restartPolicy: Never\n", "must be NotRequired"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Decode("f.yaml", []byte(test.text))
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, ErrSyntax) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestResourceDefaults(t *testing.T) {
	pods, err := Decode("f.yaml", []byte(head+"    resources: {limits: {cpu: 1}, requests: {cpu: 250m}}\n  resources: {limits: {cpu: 2, memory: 1Gi}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	own, main := pods[0].Spec.Resources.Requests, pods[0].Spec.Containers[0]
	if cpu, memory := own["cpu"], own["memory"]; cpu.String() != "250m" || memory.String() != "1Gi" {
		t.Errorf("the pod's requests: %v", own)
	}
	if p := main.ResizePolicy; len(p) != 1 || p[0].ResourceName != "cpu" || p[0].RestartPolicy != "NotRequired" {
		t.Errorf("resize policy: %v", p)
	}
}
