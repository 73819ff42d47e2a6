package container

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// described returns the pod that run builds from a command line for an image.
func described(t *testing.T, line ...string) (api.Manifest, error) {
	t.Helper()
	f := Flags{SeccompDir: "/data/seccomp"}
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.SetInterspersed(false)
	f.Add(flags)
	if err := flags.Parse(line); err != nil {
		return api.Manifest{}, err
	}
	return f.Manifest(flags.Arg(0), flags.Args()[1:])
}

// podOf returns that pod as the engine decodes it.
func podOf(t *testing.T, line ...string) *corev1.Pod {
	t.Helper()
	m, err := described(t, line...)
	if err != nil {
		t.Fatalf("%v: %v", line, err)
	}
	found, err := podapi.Read(m.Name, []byte(m.YAML))
	if err != nil {
		t.Fatalf("%v: %v", line, err)
	}
	return found.Pods[0]
}

// TestImagePod decodes the pods of command lines like the engine.
func TestImagePod(t *testing.T) {
	t.Setenv("OURS", "from $here")
	pod := podOf(t, "-it", "--name", "web", "-e", "A=1=2", "-e", "OURS", "-e", "NOT_SET", "-u", "1000:50", "-w", "/srv",
		"--cpus", "1.5", "-m", "512m", "--entrypoint", `["sh","-c"]`, "registry.example.org/app:1", "echo $(A)", "-x")
	c := pod.Spec.Containers[0]
	if pod.Name != "web" || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("%s, %s", pod.Name, pod.Spec.RestartPolicy)
	}
	one := func(n int64) *int64 { return &n }
	want := corev1.Container{
		Name: "app", Image: "registry.example.org/app:1", ImagePullPolicy: corev1.PullIfNotPresent, WorkingDir: "/srv",
		Command: []string{"sh", "-c"}, Args: []string{"echo $$(A)", "-x"}, Stdin: true, StdinOnce: true, TTY: true,
		Env:             []corev1.EnvVar{{Name: "A", Value: "1=2"}, {Name: "OURS", Value: "from $$here"}},
		SecurityContext: &corev1.SecurityContext{RunAsUser: one(1000), RunAsGroup: one(50)},
	}
	got := corev1.Container{
		Name: c.Name, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, WorkingDir: c.WorkingDir, Command: c.Command, Args: c.Args,
		Stdin: c.Stdin, StdinOnce: c.StdinOnce, TTY: c.TTY, Env: c.Env, SecurityContext: c.SecurityContext,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	limits := c.Resources.Limits
	if limits.Cpu().Cmp(resource.MustParse("1500m")) != 0 || limits.Memory().Cmp(resource.MustParse("512Mi")) != 0 {
		t.Errorf("limits %v", limits)
	}
}

// TestImageNames: without --name, the image's name gives the names of pod and container.
func TestImageNames(t *testing.T) {
	for image, want := range map[string]string{
		"busybox": "busybox", "docker.io/library/nginx:1.27": "nginx", "localhost:5000/My_App@sha256:0123": "my-app",
		"r.example.org/" + strings.Repeat("long", 20): strings.Repeat("long", 12) + "lo", "r.example.org/___": "container",
	} {
		p := podOf(t, image)
		if p.Spec.Containers[0].Name != want || len(p.Name) != len(want)+6 || !strings.HasPrefix(p.Name, want+"-") {
			t.Errorf("%s: pod %s, container %s", image, p.Name, p.Spec.Containers[0].Name)
		}
	}
}

func TestBadImageFlags(t *testing.T) {
	for _, tc := range []struct{ flag, value, want string }{
		{"--user", "1:", "must be NAME or UID"},
		{"--user", ":audio", "must be NAME or UID"},
		{"--user", "a:b:c", "must be NAME or UID"},
		{"--user", "4294967295", "not a number from 0"},
		{"--user", "bob:4294967295", "not a number from 0"},
		{"--ulimit", "host", "NAME=SOFT"},
		{"--ulimit", "nofile=2:1", "above the hard one"},
		{"--memory", "lots", "512m"},
		{"--memory", "-1", "512m"},
		{"--cpus", "0", "a number of processors"},
		{"--cpus", "nan", "a number of processors"},
		{"--cpus", "1e9", "a number of processors"},
		{"--entrypoint", "[sh", "must be a program"},
		{"--entrypoint", "[]", "must be a program"},
		{"--env", "=x", "NAME=VALUE"},
		{"--pull", "newer", "missing or always or never"},
		{"--env-file", "/not/there", "no such file"},
		{"--group-add", "audio", "the number of a group"},
		{"--memory", "512", `"512" is a number of bytes, but a container needs at least 6m: write 512m`},
		{"--memory", "5m", "too little: a container needs at least 6m"},
		{"--memory", "1024Ki", "too little"},
		{"--security-opt", "seccomp=../up.json", "must lie in /data/seccomp"},
		{"--security-opt", "seccomp=", "must lie in /data/seccomp"},
		{"--security-opt", "apparmor=docker-default", "no AppArmor profile"},
		{"--security-opt", "label=type:x", "no SELinux policy"},
		{"--security-opt", "mask=/proc/x", "single paths"},
		{"--security-opt", "no-new-privs", "use no-new-privileges"},
		{"--sysctl", "net.core.somaxconn", "NAME=VALUE"},
		{"--label", "=x", "KEY=VALUE"},
		{"--label-file", "/not/there", "no such file"},
		{"--annotation", "=x", "KEY=VALUE"},
		{"--stop-timeout", "-1", "0 or more seconds"},
		{"--stop-signal", "NOSUCH", "the name of a signal"},
		{"--stop-signal", "32", "reserves this signal"},
		{"--restart", "on-failure:3", "cannot limit restarts"},
		{"--restart", "sometimes", "use no, on-failure or always"},
		{"--hostname", "Web_1", "lower-case letters"},
		{"--add-host", "db", "NAME:IP"},
		{"--add-host", "db:host-gateway", "NAME:IP"},
		{"--dns", "dns.example.org", "IP of a name server"},
		{"--tmpfs", "/x:tmpcopyup", "starts empty"},
		{"--tmpfs", "/x:mode=999", "octal"},
		{"--tmpfs", "/x:uid=5", "use size="},
		{"--tmpfs", "x", "not an absolute path"},
	} {
		if _, err := described(t, tc.flag, tc.value, "busybox"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: %v", tc.flag, tc.value, err)
		}
	}
}

// TestVolumes parses -v and --mount as podman does.
func TestVolumes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("data", 0o755); err != nil {
		t.Fatal(err)
	}
	m, err := described(t, "-v", dir+":/a", "-v", "./data:/b:ro,z", "--mount", "type=bind,source=./data/..,target=/c,readonly",
		"--mount", "type=tmpfs,dst=/d,tmpfs-size=1Mi", "-v", "/e", "-v", "My_Data.1:/f:ro,cache=none",
		"--mount", "type=volume,src=x,dst=/g,volume-nocopy",
		"--mount", "type=volume,target=/h", "app")
	if err != nil {
		t.Fatal(err)
	}
	found, err := podapi.Read(m.Name, []byte(m.YAML))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	spec := found.Pods[0].Spec
	for i, mount := range spec.Containers[0].VolumeMounts {
		source := spec.Volumes[i].VolumeSource
		what := ""
		switch {
		case source.HostPath != nil:
			what = source.HostPath.Path
		case source.PersistentVolumeClaim != nil:
			what = "claim " + source.PersistentVolumeClaim.ClaimName + found.Pods[0].Annotations[annotations.Cache+mount.Name] +
				" " + found.Pods[0].Annotations[annotations.Copy+mount.Name]
		case source.EmptyDir != nil:
			what = string(source.EmptyDir.Medium) + source.EmptyDir.SizeLimit.String()
		}
		got = append(got, fmt.Sprintf("%s %s %t", mount.MountPath, what, mount.ReadOnly))
	}
	want := []string{"/a " + dir + " false", "/b " + dir + "/data true", "/c " + dir + " true", "/d Memory1Mi false", "/e <nil> false",
		"/f claim My_Data.1none image true", "/g claim x  false", "/h <nil> false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestVolumesRefused: invalid volumes are refused when flags are parsed.
func TestVolumesRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":              "not an absolute path",
		"a:/b":          "",
		"a/b:/b":        "neither the name of a volume nor a path",
		"_a:/b":         "neither the name of a volume nor a path",
		"a:/b:cache=no": "auto, none or always",
		":/b":           "the path on the host is missing",
		"/:b":           "not an absolute path",
		"/:/b:exec":     `option "exec"`,
		"/:/b:ro:x":     "must be HOST:POD:OPTIONS",
		`/:\:b`:         "not an absolute path",
		"/:/b:noexec":   "",
		"/not/there:/b": "no such file",
		"/:/b ":         "",
		"a:/b:nocopy":   "",
		"/:/b:nocopy":   `option "nocopy"`,
	} {
		var f volumeFlags
		flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse([]string{"-v", text}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"type=bind,src=/":                      "the target is missing",
		"type=nfs,src=/,dst=/x":                `type "nfs"`,
		"src=a/b,dst=/x":                       "not the name of a volume",
		"type=tmpfs,dst=/x,cache=none":         "cache is only for",
		"type=bind,src=/,dst=/x,volume-nocopy": "only for named volumes",
		"type=bind,src=/,dst=/x,foo=bar":       `unknown field "foo"`,
		`type=bind,"src=/,dst=/x`:              "in quotes",
		"type=bind,src=/,dst=/x,noexec=1":      `unknown field "noexec"`,
	} {
		var f volumeFlags
		flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse([]string{"--mount", text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
