package container

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestPodmanFlags: podman's flags become fields of the Pod that the engine accepts.
func TestPodmanFlags(t *testing.T) {
	t.Setenv("HOST_VALUE", "here")
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("# comment\n\n  A=1\nB=two words #\r\nHOST_VALUE\nNOT_SET\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// show prints parts of a pod: structs and pointers as JSON, other values as text.
	for _, tc := range []struct {
		line string
		show func(*corev1.Pod, *corev1.Container) any
		want string
	}{
		{"--cap-drop all --cap-add cap_net_raw,sys_time", func(_ *corev1.Pod, c *corev1.Container) any { return c.SecurityContext },
			`{"capabilities":{"add":["NET_RAW","SYS_TIME"],"drop":["ALL"]}}`},
		{"--privileged", func(_ *corev1.Pod, c *corev1.Container) any { return c.SecurityContext }, `{"privileged":true}`},
		{"--security-opt no-new-privileges", func(_ *corev1.Pod, c *corev1.Container) any { return c.SecurityContext },
			`{"allowPrivilegeEscalation":false}`},
		{"--security-opt no-new-privileges:true --security-opt seccomp=unconfined --security-opt label=disable " +
			"--security-opt apparmor=unconfined", func(_ *corev1.Pod, c *corev1.Container) any { return c.SecurityContext },
			`{"allowPrivilegeEscalation":false,"seccompProfile":{"type":"Unconfined"}}`},
		{"--security-opt seccomp=sub/p.json", func(_ *corev1.Pod, c *corev1.Container) any { return c.SecurityContext },
			`{"seccompProfile":{"type":"Localhost","localhostProfile":"sub/p.json"}}`},
		{"--security-opt seccomp=/data/seccomp/p.json", func(_ *corev1.Pod, c *corev1.Container) any { return c.SecurityContext },
			`{"seccompProfile":{"type":"Localhost","localhostProfile":"p.json"}}`},
		{"--security-opt unmask=ALL", func(p *corev1.Pod, c *corev1.Container) any { return []any{c.SecurityContext, p.Spec.HostUsers} },
			`[{"procMount":"Unmasked"},false]`},
		{"--read-only -v /tmp", func(p *corev1.Pod, c *corev1.Container) any { return []any{c.SecurityContext, places(p)} },
			`[{"readOnlyRootFilesystem":true},["/tmp  \u003cnil\u003e []","/run Memory 755 [nosuid nodev]","/var/tmp Memory 1777 [nosuid nodev]"]]`},
		{"--read-only --read-only-tmpfs=false", func(p *corev1.Pod, c *corev1.Container) any { return places(p) }, `null`},
		{"--tmpfs /a --tmpfs /b:size=1m,mode=1770,exec,ro", func(p *corev1.Pod, _ *corev1.Container) any {
			return []any{places(p), p.Spec.Volumes[1].EmptyDir.SizeLimit}
		}, `[["/a Memory \u003cnil\u003e [noexec nosuid nodev]","/b Memory 1770 ro [nosuid nodev]"],"1Mi"]`},
		{"--init", func(p *corev1.Pod, _ *corev1.Container) any { return p.Spec.ShareProcessNamespace }, `true`},
		{"--hostname web-1", func(p *corev1.Pod, _ *corev1.Container) any { return p.Spec.Hostname }, `"web-1"`},
		{"--hostname web.example.org", func(p *corev1.Pod, _ *corev1.Container) any { return p.Spec.HostnameOverride }, `"web.example.org"`},
		{"-l app=web --label tier --label app=api --annotation note=text", func(p *corev1.Pod, _ *corev1.Container) any {
			return []any{p.Labels, p.Annotations}
		}, `[{"app":"api","tier":""},{"note":"text"}]`},
		{"-v /tmp", func(p *corev1.Pod, _ *corev1.Container) any { return p.Spec.TerminationGracePeriodSeconds }, `10`},
		{"--stop-timeout 3 --stop-signal int", func(p *corev1.Pod, c *corev1.Container) any {
			return []any{p.Spec.TerminationGracePeriodSeconds, c.Lifecycle}
		}, `[3,{"stopSignal":"SIGINT"}]`},
		{"--stop-signal 2", func(_ *corev1.Pod, c *corev1.Container) any { return c.Lifecycle.StopSignal }, `"SIGINT"`},
		{"--stop-signal RTMIN+3", func(_ *corev1.Pod, c *corev1.Container) any { return c.Lifecycle.StopSignal }, `"SIGRTMIN+3"`},
		{"--stop-signal 64", func(_ *corev1.Pod, c *corev1.Container) any { return c.Lifecycle.StopSignal }, `"SIGRTMAX"`},
		{"-u bob:audio --ulimit nofile=5:6 --ulimit core=-1", func(p *corev1.Pod, c *corev1.Container) any {
			return []any{p.Annotations, c.SecurityContext}
		}, `[{"io.bulkhead.ulimits/busybox":"nofile=5:6 core=-1","io.bulkhead.user/busybox":"bob:audio"},null]`},
		{"-u 7:audio", func(p *corev1.Pod, c *corev1.Container) any { return p.Annotations }, `{"io.bulkhead.user/busybox":"7:audio"}`},
		{"-u 007", func(_ *corev1.Pod, c *corev1.Container) any { return c.SecurityContext }, `{"runAsUser":7}`},
		{"--cpus 1500m", func(_ *corev1.Pod, c *corev1.Container) any { return c.Resources.Limits.Cpu() }, `"1500m"`},
		{"--restart on-failure", func(p *corev1.Pod, _ *corev1.Container) any { return p.Spec.RestartPolicy }, `"OnFailure"`},
		{"--env-file " + file + " -e A=2", func(_ *corev1.Pod, c *corev1.Container) any { return c.Env },
			`[{"name":"A","value":"2"},{"name":"B","value":"two words #"},{"name":"HOST_VALUE","value":"here"}]`},
		{"--group-add 5,6 --sysctl net.core.somaxconn=9", func(p *corev1.Pod, _ *corev1.Container) any { return p.Spec.SecurityContext },
			`{"supplementalGroups":[5,6],"sysctls":[{"name":"net.core.somaxconn","value":"9"}]}`},
		{"--add-host db;cache:10.0.0.7 --add-host six:[fd00::1]", func(p *corev1.Pod, _ *corev1.Container) any { return p.Spec.HostAliases },
			`[{"ip":"10.0.0.7","hostnames":["db","cache"]},{"ip":"fd00::1","hostnames":["six"]}]`},
		{"--dns 10.0.0.1 --dns-search a.b --dns-option ndots:2 --dns-option edns0", func(p *corev1.Pod, _ *corev1.Container) any {
			return []any{p.Spec.DNSPolicy, p.Spec.DNSConfig}
		}, `["None",{"nameservers":["10.0.0.1"],"searches":["a.b"],"options":[{"name":"ndots","value":"2"},{"name":"edns0"}]}]`},
		{"--dns-search a.b", func(p *corev1.Pod, _ *corev1.Container) any { return p.Spec.DNSPolicy }, `"ClusterFirst"`},
	} {
		p := podOf(t, append(strings.Fields(tc.line), "busybox", "--", "true", "--x")...)
		c := &p.Spec.Containers[0]
		if diff := cmp.Diff([]string{"true", "--x"}, c.Args); diff != "" {
			t.Errorf("%s: arguments: %s", tc.line, diff)
		}
		got, err := json.Marshal(tc.show(p, c))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s:\n%s, %v, want\n%s", tc.line, got, err, tc.want)
		}
	}
}

// places returns the empty directories of a pod's container.
func places(p *corev1.Pod) (out []string) {
	for i, m := range p.Spec.Containers[0].VolumeMounts {
		dir := p.Spec.Volumes[i].EmptyDir
		mode := any(nil)
		if dir.Mode != nil {
			mode = fmt.Sprintf("%o", *dir.Mode)
		}
		text := fmt.Sprintf("%s %s %v ", m.MountPath, dir.Medium, mode)
		if m.ReadOnly {
			text += "ro "
		}
		out = append(out, text+fmt.Sprint(m.BindMountOptions))
	}
	return out
}

// TestPathsWithSeparators: a path may contain the separators of the fields.
func TestPathsWithSeparators(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a:b", "a,b", `a\b`} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := podOf(t, "-v", dir+`/a\:b:/x:ro`, "-v", dir+`/a\b:/z`, "--mount", `type=bind,"source=`+dir+`/a,b","target=/t,u"`, "busybox")
	for i, want := range []struct{ host, at string }{{"a:b", "/x"}, {`a\b`, "/z"}, {"a,b", "/t,u"}} {
		host, at := p.Spec.Volumes[i].HostPath.Path, p.Spec.Containers[0].VolumeMounts[i].MountPath
		if host != filepath.Join(dir, want.host) || at != want.at {
			t.Errorf("%s at %s, want %s at %s", host, at, want.host, want.at)
		}
	}
}
