package podapi

import (
	"errors"
	"strings"
	"testing"
)

// longName returns a domain name of n characters.
func longName(n int) string {
	return strings.Repeat("a.", n/2)[:n-1] + "a"
}

func TestValidate(t *testing.T) {
	container := func(fields string) string { return head + "    " + fields + "\n" }
	pod := func(fields string) string { return head + "  " + fields + "\n" }
	notes := func(note string) string {
		return strings.Replace(head, "metadata:\n", "metadata:\n  annotations: {"+note+"}\n", 1)
	}
	list := func(n int, word string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(word+", ", n), ", ") + "]"
	}
	tests := []struct {
		name, text, want string // empty want: valid
	}{
		{name: "hostname", text: pod("hostname: own")},
		{name: "hostname of two labels", text: pod("hostname: own.name"), want: "spec.hostname:"},
		{name: "subdomain", text: pod("subdomain: sub")},
		{name: "subdomain of two labels", text: pod("subdomain: a.b"), want: "spec.subdomain:"},
		{name: "FQDN", text: pod("setHostnameAsFQDN: true")},
		{name: "override", text: pod("hostnameOverride: a.b.c")},
		{name: "override with capitals", text: pod("hostnameOverride: A"), want: "spec.hostnameOverride:"},
		{name: "empty override", text: pod(`hostnameOverride: ""`), want: "spec.hostnameOverride: is required"},
		{name: "override of 64", text: pod("hostnameOverride: " + longName(64))},
		{name: "override of 65", text: pod("hostnameOverride: " + longName(65)), want: "no more than 64"},
		{name: "override and FQDN", text: pod("hostnameOverride: a\n  setHostnameAsFQDN: true"),
			want: "cannot be together with setHostnameAsFQDN"},
		{name: "aliases", text: pod("hostAliases: [{ip: 10.0.0.1, hostnames: [a, b.c]}, {ip: '::1'}]")},
		{name: "alias without address", text: pod("hostAliases: [{hostnames: [a]}]"), want: "spec.hostAliases[0].ip:"},
		{name: "alias of no address", text: pod("hostAliases: [{ip: localhost}]"), want: "spec.hostAliases[0].ip:"},
		{name: "alias with a bad name", text: pod("hostAliases: [{ip: 10.0.0.1, hostnames: [a_b]}]"), want: "spec.hostAliases[0].hostnames[0]:"},

		{name: "no policy", text: pod("dnsConfig: {searches: [a.b]}")},
		{name: "None", text: pod("dnsPolicy: None\n  dnsConfig: {nameservers: [10.0.0.1]}")},
		{name: "None without servers", text: pod("dnsPolicy: None"), want: "at least one DNS nameserver"},
		{name: "None with searches alone", text: pod("dnsPolicy: None\n  dnsConfig: {searches: [a]}"), want: "at least one DNS nameserver"},
		{name: "unknown policy", text: pod("dnsPolicy: Some"), want: "spec.dnsPolicy"},
		{name: "three servers", text: pod("dnsConfig: {nameservers: [10.0.0.1, 10.0.0.2, '2001:db8::1']}")},
		{name: "four servers", text: pod("dnsConfig: {nameservers: " + list(4, "10.0.0.1") + "}"), want: "more than 3 nameservers"},
		{name: "a server by name", text: pod("dnsConfig: {nameservers: [dns.example]}"), want: "spec.dnsConfig.nameservers[0]:"},
		{name: "32 searches", text: pod("dnsConfig: {searches: " + list(32, "a.b") + "}")},
		{name: "33 searches", text: pod("dnsConfig: {searches: " + list(33, "a.b") + "}"), want: "more than 32 search paths"},
		{name: "searches of 2048", text: pod("dnsConfig: {searches: [" + strings.Repeat(longName(240)+", ", 8) + longName(120) + "]}")},
		{name: "searches of 2049", text: pod("dnsConfig: {searches: [" + strings.Repeat(longName(240)+", ", 8) + longName(121) + "]}"),
			want: "more than 2048 characters"},
		{name: "odd searches", text: pod("dnsConfig: {searches: [., _srv.a., a_b]}")},
		{name: "bad search", text: pod("dnsConfig: {searches: ['a b']}"), want: "spec.dnsConfig.searches[0]:"},
		{name: "options", text: pod("dnsConfig: {options: [{name: ndots, value: '2'}, {name: edns0}]}")},
		{name: "nameless option", text: pod("dnsConfig: {options: [{value: '2'}]}"), want: "spec.dnsConfig.options[0].name:"},
		{name: "option of two lines", text: pod(`dnsConfig: {options: [{name: "a\nnameserver 1.2.3.4"}]}`), want: "spec.dnsConfig.options[0]"},

		{name: "privileged", text: container("securityContext: {privileged: true}")},
		{name: "privileged without escalation", text: container("securityContext: {privileged: true, allowPrivilegeEscalation: false}"),
			want: "together with privileged"},
		{name: "administrator without escalation",
			text: container("securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}, allowPrivilegeEscalation: false}"), want: "SYS_ADMIN"},
		{name: "user out of range", text: container("securityContext: {runAsUser: -1}"), want: "runAsUser: -1 is out of range"},
		{name: "largest user", text: container("securityContext: {runAsUser: 2147483647}")},
		{name: "group out of range", text: pod("securityContext: {runAsGroup: 2147483648}"), want: "runAsGroup"},
		{name: "groups", text: pod("securityContext: {supplementalGroups: [1, -2]}"), want: "supplementalGroups[1]"},
		{name: "strict groups", text: pod("securityContext: {supplementalGroupsPolicy: Strict}")},
		{name: "other groups", text: pod("securityContext: {supplementalGroupsPolicy: Loose}"), want: "supplementalGroupsPolicy"},
		{name: "profile", text: pod("securityContext: {seccompProfile: {type: Localhost, localhostProfile: a/b.json}}")},
		{name: "profile without file", text: container("securityContext: {seccompProfile: {type: Localhost}}"),
			want: "must be set when type is Localhost"},
		{name: "profile outside", text: pod("securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../b.json}}"),
			want: "is not a path below"},
		{name: "profile outside and back", text: pod("securityContext: {seccompProfile: {type: Localhost, localhostProfile: a/../b.json}}"),
			want: "is not a path below"},
		{name: "absolute profile", text: pod("securityContext: {seccompProfile: {type: Localhost, localhostProfile: /etc/passwd}}"),
			want: "is not a path below"},
		{name: "file of a default", text: pod("securityContext: {seccompProfile: {type: RuntimeDefault, localhostProfile: a}}"),
			want: "only be set when type is Localhost"},
		{name: "profile without type", text: container("securityContext: {seccompProfile: {localhostProfile: a}}"), want: "type"},
		{name: "AppArmor unconfined", text: container("securityContext: {appArmorProfile: {type: Unconfined}}")},
		{name: "AppArmor default", text: container("securityContext: {appArmorProfile: {type: RuntimeDefault}}"),
			want: "appArmorProfile.type: RuntimeDefault is not honoured"},
		{name: "masked", text: container("securityContext: {procMount: Default}")},
		{name: "unmasked", text: container("securityContext: {procMount: Unmasked}") + "  hostUsers: false\n"},
		{name: "unmasked with the host's users", text: container("securityContext: {procMount: Unmasked}"), want: "hostUsers must be false"},
		{name: "half masked", text: container("securityContext: {procMount: Half}"), want: "procMount"},
		{name: "SELinux", text: pod("securityContext: {seLinuxOptions: {level: s0}}"),
			want: "seLinuxOptions: is not honoured: the guest loads no SELinux policy"},
		{name: "a user by name", text: notes(`io.bulkhead.user/main: "bob:7"`)},
		{name: "a user of no container", text: notes(`io.bulkhead.user/other: bob`), want: `no container "other"`},
		{name: "an invalid user", text: notes(`io.bulkhead.user/main: "a:b:c"`), want: "is not NAME or NAME:GROUP"},
		{name: "a user with a sign", text: notes(`io.bulkhead.user/main: "-1"`), want: "is not NAME or NAME:GROUP"},
		{name: "a user and a number", text: notes(`io.bulkhead.user/main: bob`) + "  securityContext: {runAsUser: 5}\n",
			want: "cannot be together"},
		{name: "ulimits", text: notes(`io.bulkhead.ulimits/main: nofile=5:6 core=0`)},
		{name: "ulimits of no container", text: notes(`io.bulkhead.ulimits/other: core=0`), want: `no container "other"`},
		{name: "invalid ulimits", text: notes(`io.bulkhead.ulimits/main: nofile`), want: "a limit must be a number"},
		{name: "sysctl twice", text: pod("securityContext: {sysctls: [{name: a.b, value: '1'}, {name: a.b, value: '2'}]}"), want: "twice"},

		{name: "huge pages", text: container("resources: {limits: {hugepages-2Mi: 4Mi, memory: 8Mi}}")},
		{name: "huge pages alone", text: container("resources: {limits: {hugepages-2Mi: 4Mi}}"), want: "require cpu or memory"},
		{name: "half a huge page", text: container("resources: {limits: {hugepages-2Mi: 3Mi, memory: 8Mi}}"), want: "not a multiple"},
		{name: "fewer huge pages", text: container("resources: {limits: {hugepages-2Mi: 4Mi, memory: 8Mi}, requests: {hugepages-2Mi: 2Mi}}"),
			want: "must equal the limit"},
		{name: "huge pages requested alone", text: container("resources: {requests: {hugepages-2Mi: 2Mi, cpu: 1}}"),
			want: "hugepages-2Mi: must be set"},
		{name: "larger huge pages", text: container("resources: {limits: {hugepages-1Gi: 1Gi, memory: 8Mi}}"),
			want: "hugepages-1Gi: is not honoured"},
		{name: "storage", text: container("resources: {limits: {ephemeral-storage: 1Gi}, requests: {ephemeral-storage: 1Mi}}")},
		{name: "pod's resources", text: pod("resources: {limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 1}}")},
		{name: "pod's requests below its containers'",
			text: container("resources: {requests: {cpu: 2}}") + "  resources: {requests: {cpu: 1}}\n", want: "aggregate container requests of 2"},
		{name: "a container's limit above the pod's",
			text: container("resources: {limits: {memory: 2Gi}}") + "  resources: {limits: {memory: 1Gi}, requests: {memory: 2Gi}}\n",
			want: "less than or equal to the pod's limit of 1Gi"},
		{name: "negative overhead", text: pod("overhead: {cpu: -1}"), want: "spec.overhead.cpu: -1 is negative"},
		{name: "resize", text: container("resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]")},
		{name: "resize of storage", text: container("resizePolicy: [{resourceName: ephemeral-storage, restartPolicy: NotRequired}]"),
			want: "resizePolicy[0].resourceName"},
		{name: "resize twice", text: container("resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, " +
			"restartPolicy: NotRequired}]"), want: "appears twice"},
		{name: "restart to resize, and never", text: container("resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]") +
			"  restartPolicy: Never\n", want: "must be NotRequired"},
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
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, errSyntax) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestResourceDefaults(t *testing.T) {
	pods, err := Decode("f.yaml", []byte(head+"    resources: {limits: {cpu: 1}, requests: {cpu: 250m}}\n  resources: {limits: {cpu: 2, "+
		"memory: 1Gi}}\n"))
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
