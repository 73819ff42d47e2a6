package config

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Short forms of the references.
func value(name, text string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: text} }

func from(name string, source corev1.EnvVarSource) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &source}
}

func field(name, path string) corev1.EnvVar {
	return from(name, corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}})
}

func configKey(name, object, key string, optional *bool) corev1.EnvVar {
	return from(name, corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: object}, Key: key, Optional: optional}})
}

func secretKey(name, object, key string, optional *bool) corev1.EnvVar {
	return from(name, corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: object}, Key: key, Optional: optional}})
}

func limitOf(name, container, of, divisor string) corev1.EnvVar {
	ref := &corev1.ResourceFieldSelector{ContainerName: container, Resource: of}
	if divisor != "" {
		ref.Divisor = resource.MustParse(divisor)
	}
	return from(name, corev1.EnvVarSource{ResourceFieldRef: ref})
}

func allOfConfig(prefix, object string, optional *bool) corev1.EnvFromSource {
	return corev1.EnvFromSource{Prefix: prefix, ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: object}, Optional: optional}}
}

func allOfSecret(prefix, object string, optional *bool) corev1.EnvFromSource {
	return corev1.EnvFromSource{Prefix: prefix, SecretRef: &corev1.SecretEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: object}, Optional: optional}}
}

// TestEnvironment covers the kubelet's table: each kind of source, existing, missing and optional, in order and
// overriding each other.
func TestEnvironment(t *testing.T) {
	yes, no := true, false
	pod := testpod.New("Never", "main")
	pod.Labels, pod.Annotations = map[string]string{"app": "web", "tier": "x"}, map[string]string{"a.b/c": "note", "Big/Key": "big"}
	pod.Spec.ServiceAccountName = "robot"
	other := pod.Spec.Containers[0].DeepCopy()
	other.Name = "other"
	other.Resources = corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("100Mi"),
			"hugepages-2Mi": resource.MustParse("4Mi")},
		Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("64Mi"),
			"ephemeral-storage": resource.MustParse("1Gi")},
	}
	pod.Spec.Containers = append(pod.Spec.Containers, *other)
	objects := testpod.Set(t,
		[]*corev1.ConfigMap{testpod.ConfigMap("settings", "A", "a", "B", "$(A)", "dash-ed.key", "d", "1", "one"), testpod.ConfigMap("empty"),
			testpod.ConfigMap("odd", "ok", "1", "a=b", "2", "c d", "3", "", "4")},
		[]*corev1.Secret{testpod.Secret("keys", "S", "s", "bin", "\x00\xff"), testpod.Secret("empty"),
			testpod.Secret("over", "A", "from secret", "a\x00b", "x")})
	for _, tc := range []struct {
		name    string
		envFrom []corev1.EnvFromSource
		env     []corev1.EnvVar
		want    []variable
		skipped []string
		err     string
	}{
		{name: "nothing"},
		{name: "values", env: []corev1.EnvVar{value("OPTS", "a=b=c"), value("EMPTY", "")}, want: []variable{{"OPTS", "a=b=c"}, {"EMPTY", ""}}},
		{name: "expansion", env: []corev1.EnvVar{
			value("A", "1"), value("B", "$(A)2"), value("LATER", "$(Z)"), value("ESCAPED", "$$(A)"), value("TWICE", "$$$$(A)"),
			value("MIXED", "$$$(A)"),
			value("OPEN", "$(A"), value("DOLLAR", "$"), value("SELF", "$(SELF)"), value("NESTED", "$($(A))"), value("Z", "z"),
			value("EMPTYNAME", "$()"),
		}, want: []variable{{"A", "1"}, {"B", "12"}, {"LATER", "$(Z)"}, {"ESCAPED", "$(A)"}, {"TWICE", "$$(A)"}, {"MIXED", "$1"},
			{"OPEN", "$(A"}, {"DOLLAR", "$"}, {"SELF", "$(SELF)"}, {"NESTED", "$($(A))"}, {"Z", "z"}, {"EMPTYNAME", "$()"}}},
		{name: "again", env: []corev1.EnvVar{value("A", "1"), value("B", "b"), value("A", "$(A)!")}, want: []variable{{"A", "1!"}, {"B", "b"}}},
		{name: "a reference's value is not expanded",
			env:  []corev1.EnvVar{value("A", "x"), configKey("B", "settings", "B", nil), value("C", "$(B)")},
			want: []variable{{"A", "x"}, {"B", "$(A)"}, {"C", "$(A)"}}},

		{name: "fields", env: []corev1.EnvVar{field("NAME", "metadata.name"), field("SPACE", "metadata.namespace"), field("UID", "metadata.uid"),
			field("APP", "metadata.labels['app']"), field("NOTE", "metadata.annotations['a.b/c']"),
			field("BIG", "metadata.annotations['Big/Key']"), field("NONE", "metadata.labels['no']"),
			field("IP", "status.podIP"), field("IPS", "status.podIPs"), field("HOST", "status.hostIP"), field("HOSTS", "status.hostIPs"),
			field("NODE", "spec.nodeName"), field("ROBOT", "spec.serviceAccountName"), value("LAST", "$(NAME)")},
			want: []variable{{"NAME", "web"}, {"SPACE", "default"}, {"UID", "u-1"}, {"APP", "web"}, {"NOTE", "note"}, {"BIG", "big"}, {"NONE", ""},
				{"IP", "10.0.2.15"}, {"IPS", "10.0.2.15,fd00::15"}, {"HOST", "192.0.2.1"}, {"HOSTS", "192.0.2.1"}, {"NODE", "node-1"},
				{"ROBOT", "robot"}, {"LAST", "web"}}},
		{name: "all labels", env: []corev1.EnvVar{field("L", "metadata.labels")}, want: []variable{{"L", "app=\"web\"\ntier=\"x\""}}},
		{name: "no such field", env: []corev1.EnvVar{field("A", "spec.oops")}, err: `field path "spec.oops" is not supported`},

		{name: "limits", env: []corev1.EnvVar{limitOf("C", "other", "limits.cpu", ""), limitOf("M", "other", "limits.cpu", "1m"),
			limitOf("B", "other", "limits.memory", ""),
			limitOf("MI", "other", "limits.memory", "1Mi"), limitOf("MB", "other", "limits.memory", "1M"),
			limitOf("H", "other", "limits.hugepages-2Mi", "1Mi")},
			want: []variable{{"C", "2"}, {"M", "1500"}, {"B", "104857600"}, {"MI", "100"}, {"MB", "105"}, {"H", "4"}}},
		{name: "requests", env: []corev1.EnvVar{limitOf("C", "other", "requests.cpu", ""), limitOf("M", "other", "requests.cpu", "1m"),
			limitOf("B", "other", "requests.memory", "1Mi"),
			limitOf("E", "other", "requests.ephemeral-storage", "1Gi")}, want: []variable{{"C", "1"}, {"M", "250"}, {"B", "64"}, {"E", "1"}}},
		{name: "limits of a container without limits", env: []corev1.EnvVar{limitOf("C", "", "limits.cpu", ""),
			limitOf("B", "main", "limits.memory", "1Mi"), limitOf("R", "", "requests.cpu", "1m"),
			limitOf("E", "", "limits.ephemeral-storage", "1Gi")}, want: []variable{{"C", "4"}, {"B", "512"}, {"R", "0"}, {"E", "10"}}},
		{name: "no such container", env: []corev1.EnvVar{limitOf("C", "nobody", "limits.cpu", "")}, err: "container nobody not found"},
		{name: "no such resource", env: []corev1.EnvVar{limitOf("C", "", "limits.gpu", "")}, err: "unsupported container resource: limits.gpu"},

		{name: "keys", env: []corev1.EnvVar{configKey("A", "settings", "A", nil), secretKey("S", "keys", "S", &no),
			secretKey("BIN", "keys", "bin", nil)},
			want: []variable{{"A", "a"}, {"S", "s"}, {"BIN", "\x00\xff"}}},
		{name: "no config map", env: []corev1.EnvVar{configKey("A", "gone", "A", nil)}, err: `configmap "gone" not found`},
		{name: "no config map, said so", env: []corev1.EnvVar{configKey("A", "gone", "A", &no)}, err: `configmap "gone" not found`},
		{name: "optional config map", env: []corev1.EnvVar{configKey("A", "gone", "A", &yes), value("B", "$(A)")},
			want: []variable{{"B", "$(A)"}}},
		{name: "no key", env: []corev1.EnvVar{configKey("A", "settings", "gone", nil)},
			err: "couldn't find key gone in ConfigMap default/settings"},
		{name: "optional key", env: []corev1.EnvVar{configKey("A", "settings", "gone", &yes)}},
		{name: "no secret", env: []corev1.EnvVar{secretKey("A", "gone", "A", nil)}, err: `secret "gone" not found`},
		{name: "optional secret", env: []corev1.EnvVar{secretKey("A", "gone", "A", &yes)}},
		{name: "no secret key", env: []corev1.EnvVar{secretKey("A", "keys", "gone", nil)}, err: "couldn't find key gone in Secret default/keys"},
		{name: "optional secret key", env: []corev1.EnvVar{secretKey("A", "keys", "gone", &yes)}},

		{name: "all of a config map", envFrom: []corev1.EnvFromSource{allOfConfig("", "settings", nil)},
			want: []variable{{"1", "one"}, {"A", "a"}, {"B", "$(A)"}, {"dash-ed.key", "d"}}},
		{name: "with a prefix", envFrom: []corev1.EnvFromSource{allOfConfig("p_", "settings", nil)},
			want: []variable{{"p_1", "one"}, {"p_A", "a"}, {"p_B", "$(A)"}, {"p_dash-ed.key", "d"}}},
		{name: "all of a secret", envFrom: []corev1.EnvFromSource{allOfSecret("", "keys", nil)},
			want: []variable{{"S", "s"}, {"bin", "\x00\xff"}}},
		{name: "a secret with a prefix", envFrom: []corev1.EnvFromSource{allOfSecret("p_", "keys", nil)},
			want: []variable{{"p_S", "s"}, {"p_bin", "\x00\xff"}}},
		{name: "empty objects", envFrom: []corev1.EnvFromSource{allOfConfig("", "empty", nil), allOfSecret("", "empty", nil)}},
		{name: "the later one wins", envFrom: []corev1.EnvFromSource{allOfConfig("", "settings", nil), allOfSecret("", "over", nil)},
			want: []variable{{"1", "one"}, {"A", "from secret"}, {"B", "$(A)"}, {"dash-ed.key", "d"}}, skipped: []string{"secret over a\x00b"}},
		{name: "env wins over envFrom", envFrom: []corev1.EnvFromSource{allOfConfig("", "settings", nil)},
			env:  []corev1.EnvVar{value("A", "mine"), value("C", "$(A) $(B) $(1)")},
			want: []variable{{"1", "one"}, {"A", "mine"}, {"B", "$(A)"}, {"dash-ed.key", "d"}, {"C", "mine $(A) one"}}},
		{name: "invalid names", envFrom: []corev1.EnvFromSource{allOfConfig("", "odd", nil)},
			want: []variable{{"c d", "3"}, {"ok", "1"}}, skipped: []string{"configMap odd ,a=b"}},
		{name: "no config map to take", envFrom: []corev1.EnvFromSource{allOfConfig("", "gone", &no)}, err: `configmap "gone" not found`},
		{name: "optional config map to take", envFrom: []corev1.EnvFromSource{allOfConfig("", "gone", &yes)}},
		{name: "no secret to take", envFrom: []corev1.EnvFromSource{allOfSecret("", "gone", nil)}, err: `secret "gone" not found`},
		{name: "optional secret to take", envFrom: []corev1.EnvFromSource{allOfSecret("", "gone", &yes)}},
		{name: "no source", env: []corev1.EnvVar{from("A", corev1.EnvVarSource{})}, err: "not honoured"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			container := pod.Spec.Containers[0].DeepCopy()
			container.Env, container.EnvFrom = tc.env, tc.envFrom
			got, err := resolveEnvironment(t.Context(), &Options{Pod: pod, Objects: objects, HostIP: "192.0.2.1", NodeName: "node-1"},
				container, Launch{
					IPs: []string{"10.0.2.15", "fd00::15"},
					Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("512Mi"),
						"ephemeral-storage": resource.MustParse("10Gi")},
				})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.out, cmp.AllowUnexported(variable{})); diff != "" {
				t.Error(diff)
			}
			var skipped []string
			for _, s := range got.skipped {
				skipped = append(skipped, s.Source+" "+s.Name+" "+strings.Join(s.Keys, ","))
			}
			if diff := cmp.Diff(tc.skipped, skipped); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestEnvironmentWithoutObjects: without objects, a reference is not found.
func TestEnvironmentWithoutObjects(t *testing.T) {
	pod := testpod.New("Never", "main")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{secretKey("A", "keys", "S", nil)}
	_, err := resolveEnvironment(t.Context(), &Options{Pod: pod}, &pod.Spec.Containers[0], Launch{})
	if err == nil || err.Error() != `secret "keys" not found` {
		t.Error(err)
	}
}

// TestEnvironmentOfTheHostsNetwork: a pod on the host's network has the host's address, even if the runtime reports
// none.
func TestEnvironmentOfTheHostsNetwork(t *testing.T) {
	t.Parallel()
	pod := testpod.New("Never", "main")
	pod.Spec.HostNetwork = true
	for _, path := range []string{"status.podIP", "status.podIPs"} {
		pod.Spec.Containers[0].Env = []corev1.EnvVar{field("A", path)}
		for _, with := range []Launch{{}, {IPs: []string{"10.0.2.15"}}} {
			got, err := resolveEnvironment(t.Context(), &Options{Pod: pod, HostIP: "192.0.2.1"}, &pod.Spec.Containers[0], with)
			if err != nil || cmp.Diff([]variable{{"A", "192.0.2.1"}}, got.out, cmp.AllowUnexported(variable{})) != "" {
				t.Errorf("%s: %v, %v", path, got.out, err)
			}
		}
	}
}

// TestEnvironmentNotes: references without a value are reported with Virtual Kubelet's reasons.
func TestEnvironmentNotes(t *testing.T) {
	t.Parallel()
	yes := true
	objects := testpod.Set(t, []*corev1.ConfigMap{testpod.ConfigMap("settings", "A", "a")}, []*corev1.Secret{testpod.Secret("keys", "S", "s")})
	for _, tt := range []struct {
		env  corev1.EnvVar
		from *corev1.EnvFromSource
		want string
	}{
		{env: configKey("A", "settings", "A", nil)},
		{env: configKey("A", "settings", "B", nil), want: `MandatoryConfigMapKeyNotFound: key "B" not found in ConfigMap "settings"`},
		{env: configKey("A", "settings", "B", &yes), want: `OptionalConfigMapKeyNotFound: key "B" not found in ConfigMap "settings"`},
		{env: configKey("A", "gone", "B", nil), want: `MandatoryConfigMapNotFound: ConfigMap "gone" not found`},
		{env: secretKey("A", "keys", "B", nil), want: `MandatorySecretKeyNotFound: key "B" not found in Secret "keys"`},
		{env: secretKey("A", "gone", "B", &yes), want: `OptionalSecretNotFound: Secret "gone" not found`},
		{env: secretKey("A", "gone", "B", nil), want: `MandatorySecretNotFound: Secret "gone" not found`},
		{env: value("A", "a"), from: new(allOfConfig("", "gone", &yes)), want: `OptionalConfigMapNotFound: ConfigMap "gone" not found`},
		{env: value("A", "a"), from: new(allOfSecret("", "gone", nil)), want: `MandatorySecretNotFound: Secret "gone" not found`},
	} {
		p := testpod.New("Never", "main")
		p.Spec.Containers[0].Env = []corev1.EnvVar{tt.env}
		if tt.from != nil {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{*tt.from}
		}
		got := ""
		_, err := resolveEnvironment(t.Context(), &Options{Pod: p, Objects: objects}, &p.Spec.Containers[0], Launch{
			Note: func(reason, message string) { got += reason + ": " + message },
		})
		if got != tt.want || (err != nil) != strings.HasPrefix(tt.want, "Mandatory") {
			t.Errorf("%q, %v, want %q", got, err, tt.want)
		}
	}
}

// unread are objects that cannot be read.
type unread struct{ volume.None }

func (unread) Secret(context.Context, string) (*corev1.Secret, error) {
	return nil, errors.New("not now")
}

// TestEnvironmentUnread: an unreadable object is not a missing one.
func TestEnvironmentUnread(t *testing.T) {
	t.Parallel()
	p, got := testpod.New("Never", "main"), ""
	p.Spec.Containers[0].Env = []corev1.EnvVar{secretKey("A", "keys", "B", new(true))}
	_, err := resolveEnvironment(t.Context(), &Options{Pod: p, Objects: unread{}}, &p.Spec.Containers[0], Launch{
		Note: func(reason, message string) { got += reason + ": " + message },
	})
	if want := `FailedToReadOptionalSecret: Secret "keys" could not be read: not now`; got != want || err == nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
