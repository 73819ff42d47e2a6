package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

func TestHostname(t *testing.T) {
	yes, no, override := true, false, "own.example"
	long := strings.Repeat("a", 63)
	for name, test := range map[string]struct {
		pod        string
		spec       corev1.PodSpec
		domain     string // the cluster's
		want, fqdn string // an empty want means an error
	}{
		"the pod's name":   {pod: "web", spec: corev1.PodSpec{}, want: "web"},
		"a long name":      {pod: strings.Repeat("a", 62) + "-b", spec: corev1.PodSpec{}, want: strings.Repeat("a", 62)},
		"a dot at the cut": {pod: strings.Repeat("a", 61) + "..b", spec: corev1.PodSpec{}, want: strings.Repeat("a", 61)},
		"its own":          {pod: "web", spec: corev1.PodSpec{Hostname: "own"}, want: "own"},
		"subdomain":        {pod: "web", spec: corev1.PodSpec{Subdomain: "sub"}, want: "web", fqdn: "sub.default.svc.cluster.local"},
		"subdomain elsewhere": {pod: "web", spec: corev1.PodSpec{Subdomain: "sub"}, domain: "k8s.example", want: "web",
			fqdn: "sub.default.svc.k8s.example"},
		"FQDN": {pod: "web", spec: corev1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: &yes},
			want: "web.sub.default.svc.cluster.local", fqdn: "sub.default.svc.cluster.local"},
		"no FQDN": {pod: "web", spec: corev1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: &no}, want: "web",
			fqdn: "sub.default.svc.cluster.local"},
		"FQDN without a subdomain": {pod: "web", spec: corev1.PodSpec{SetHostnameAsFQDN: &yes}, want: "web"},
		"FQDN of 64": {pod: "web", spec: corev1.PodSpec{Subdomain: strings.Repeat("s", 34), SetHostnameAsFQDN: &yes},
			want: "web." + strings.Repeat("s", 34) + ".default.svc.cluster.local", fqdn: strings.Repeat("s", 34) + ".default.svc.cluster.local"},
		"FQDN of 65": {pod: "web", spec: corev1.PodSpec{Subdomain: strings.Repeat("s", 35), SetHostnameAsFQDN: &yes},
			fqdn: strings.Repeat("s", 35) + ".default.svc.cluster.local"},
		"override": {pod: "web", spec: corev1.PodSpec{Hostname: "h", Subdomain: "sub", HostnameOverride: &override},
			want: override},
		"override of 64 characters": {pod: "web", spec: corev1.PodSpec{HostnameOverride: new(long + "a")}, want: long + "a"},
	} {
		pod := testpod.New("Never", "main")
		pod.Name, pod.Spec = test.pod, test.spec
		o := &Options{Pod: pod, ClusterDomain: test.domain}
		got, err := o.hostname()
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, test.want)
		}
		if domain := o.names().domain; domain != test.fqdn {
			t.Errorf("%s: domain %q, want %q", name, domain, test.fqdn)
		}
	}
}

const hostsHead = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
	"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"

func TestHostsFile(t *testing.T) {
	for name, test := range map[string]struct {
		names   names
		ips     []string
		aliases []corev1.HostAlias
		want    string
	}{
		"plain":      {names: names{"web", ""}, ips: []string{"10.0.0.2"}, want: "10.0.0.2\tweb\n"},
		"domain":     {names: names{"web", "sub.ns.svc.x"}, ips: []string{"10.0.0.2"}, want: "10.0.0.2\tweb.sub.ns.svc.x\tweb\n"},
		"two":        {names: names{"web", ""}, ips: []string{"10.0.0.2", "fd00::2"}, want: "10.0.0.2\tweb\nfd00::2\tweb\n"},
		"two in one": {names: names{"web", "d"}, ips: []string{"10.0.0.2", "fd00::2"}, want: "10.0.0.2\tweb.d\tweb\nfd00::2\tweb.d\tweb\n"},
		"no network": {names: names{"web", ""}, want: "127.0.0.1\tweb\n"},
		"aliases": {names: names{"web", ""}, ips: []string{"10.0.0.2"},
			aliases: []corev1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "b.c"}}, {IP: "::2", Hostnames: []string{"d"}}},
			want:    "10.0.0.2\tweb\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb.c\n::2\td\n"},
	} {
		if diff := cmp.Diff(hostsHead+test.want, hostsFile(test.names, test.ips, test.aliases)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestHostsMount(t *testing.T) {
	pod, yes := testpod.New("Never", "main"), true
	o := &Options{Pod: pod, HostsFile: filepath.Join(t.TempDir(), "etc-hosts")}
	got, err := hostsMount(o, &pod.Spec.Containers[0], []string{"10.0.0.2"})
	if err != nil || got.HostPath != o.HostsFile || got.ContainerPath != "/etc/hosts" || got.Readonly {
		t.Fatalf("mount %v, %v", got, err)
	}
	if data, err := os.ReadFile(o.HostsFile); err != nil || string(data) != hostsHead+"10.0.0.2\tweb\n" {
		t.Errorf("file %q, %v", data, err)
	}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: &yes}
	if got, err := hostsMount(o, &pod.Spec.Containers[0], nil); err != nil || !got.Readonly {
		t.Errorf("with a read-only root: %v, %v", got, err)
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{MountPath: "/etc/hosts"}}
	if got, err := hostsMount(o, &pod.Spec.Containers[0], nil); err != nil || got != nil {
		t.Errorf("over the container's own: %v, %v", got, err)
	}
	if got, err := hostsMount(&Options{Pod: pod}, &corev1.Container{}, nil); err != nil || got != nil {
		t.Errorf("with nowhere to write: %v, %v", got, err)
	}
}

func TestDNS(t *testing.T) {
	type dns = runtimeapi.DNSConfig
	type own = corev1.PodDNSConfig
	option := func(name, value string) corev1.PodDNSConfigOption {
		if value == "" {
			return corev1.PodDNSConfigOption{Name: name}
		}
		return corev1.PodDNSConfigOption{Name: name, Value: &value}
	}
	many := func(n, length int) (out []string) {
		for i := range n {
			out = append(out, strings.Repeat(string(rune('a'+i%26)), length-2)+string(rune('0'+i/26%10))+string(rune('0'+i%10)))
		}
		return out
	}
	host := &dns{Servers: []string{"10.0.0.1"}, Searches: []string{"host.example"}, Options: []string{"ndots:5", "edns0"}}
	for name, test := range map[string]struct {
		policy corev1.DNSPolicy
		own    *own
		host   *dns
		want   *dns
		notes  int
	}{
		"the runtime's":     {policy: "ClusterFirst"},
		"the host's":        {policy: "Default", host: host, want: host},
		"without a cluster": {policy: "ClusterFirst", host: host, want: host},
		"none": {policy: "None", own: &own{Nameservers: []string{"9.9.9.9"}}, host: host,
			want: &dns{Servers: []string{"9.9.9.9"}}},
		"over the runtime's": {policy: "Default", own: &own{Searches: []string{"a"}}, want: &dns{Searches: []string{"a"}}},
		"merged": {policy: "Default",
			own: &own{Nameservers: []string{"9.9.9.9", "10.0.0.1"}, Searches: []string{"a", "host.example"},
				Options: []corev1.PodDNSConfigOption{option("ndots", "2"), option("debug", "")}}, host: host,
			want: &dns{Servers: []string{"10.0.0.1", "9.9.9.9"}, Searches: []string{"host.example", "a"},
				Options: []string{"ndots:2", "edns0", "debug"}}},
		"an option set to itself": {policy: "Default", own: &own{Options: []corev1.PodDNSConfigOption{option("edns0", "")}}, host: host,
			want: host},
		"an option without value": {policy: "Default", own: &own{Options: []corev1.PodDNSConfigOption{option("ndots", "")}}, host: host,
			want: &dns{Servers: host.Servers, Searches: host.Searches, Options: []string{"ndots", "edns0"}}},
		"four servers": {policy: "Default", own: &own{Nameservers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3"}}, host: host,
			want: &dns{Servers: []string{"10.0.0.1", "1.1.1.1", "2.2.2.2"}, Searches: host.Searches, Options: host.Options}, notes: 1},
		"33 searches": {policy: "None", own: &own{Searches: many(33, 4)}, want: &dns{Searches: many(33, 4)[:32]}, notes: 1},
		"a search too long": {policy: "None", own: &own{Searches: append([]string{strings.Repeat("x", 254)}, "ok")},
			want: &dns{Searches: []string{"ok"}}, notes: 1},
		"searches of 2048": {policy: "None", own: &own{Searches: append(many(8, 240), strings.Repeat("z", 120))},
			want: &dns{Searches: append(many(8, 240), strings.Repeat("z", 120))}},
		"searches of 2049": {policy: "None", own: &own{Searches: append(many(8, 240), strings.Repeat("z", 121))},
			want: &dns{Searches: many(8, 240)}, notes: 1},
	} {
		pod := testpod.New("Never", "main")
		pod.Spec.DNSPolicy, pod.Spec.DNSConfig = test.policy, test.own
		o := &Options{Pod: pod}
		if test.host != nil {
			o.DNS = func() *dns { return test.host }
		}
		got, notes := DNSOf(o)
		if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if len(notes) != test.notes {
			t.Errorf("%s: notes %q", name, notes)
		}
	}
	if len(host.Servers) != 1 {
		t.Error("the host's configuration was changed")
	}
}
