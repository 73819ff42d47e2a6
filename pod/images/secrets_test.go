package images

import (
	"encoding/base64"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPullSecretMatches(t *testing.T) {
	for _, test := range []struct {
		place, image string
		want         bool
	}{
		{"registry.example", "registry.example/a/b:1", true},
		{"https://registry.example", "registry.example/a", true},
		{"http://registry.example/v2/", "registry.example/a", true},
		{"https://registry.example/v1", "registry.example/a", true},
		{"registry.example/a", "registry.example/a/b", true},
		{"registry.example/a", "registry.example/b", false},
		{"registry.example:5000", "registry.example/a", false},
		{"registry.example:5000", "registry.example:5000/a", true},
		{"*.example", "registry.example/a", true},
		{"*.example", "a.b.example/a", false},
		{"re*.example", "registry.example/a", true},
		{"example", "registry.example/a", false},
		{"https://index.docker.io/v1/", "busybox", true},
		{"https://index.docker.io/v1/", "library/busybox:1", true},
		{"https://index.docker.io/v1/", "docker.io/library/busybox", true},
		{"https://index.docker.io/v1/", "registry.example/busybox", false},
		{"https://index.docker.io/v1/", "localhost/busybox", false},
		{"localhost", "localhost/busybox", true},
		{"127.0.0.1:5000", "127.0.0.1:5000/busybox", true},
		{"", "registry.example/a", false},
	} {
		got := len(authsFor([]credential{{place: placeOf(test.place)}}, test.image)) == 1
		if got != test.want {
			t.Errorf("%q for %q: %v", test.place, test.image, got)
		}
	}
}

func TestPullSecretForms(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("me:pa:ss"))
	for name, test := range map[string]struct {
		kind corev1.SecretType
		data map[string]string
		want string // "user:password" of the only credential; empty: an error
	}{
		"auth":         {corev1.SecretTypeDockerConfigJson, map[string]string{".dockerconfigjson": `{"auths":{"r.example":{"auth":"` + auth + `"}}}`}, "me:pa:ss"},
		"fields":       {corev1.SecretTypeDockerConfigJson, map[string]string{".dockerconfigjson": `{"auths":{"r.example":{"username":"me","password":"x"}}}`}, "me:x"},
		"the old form": {corev1.SecretTypeDockercfg, map[string]string{".dockercfg": `{"r.example":{"username":"me","password":"x"}}`}, "me:x"},
		"another type": {corev1.SecretTypeOpaque, map[string]string{".dockercfg": `{}`}, ""},
		"not JSON":     {corev1.SecretTypeDockercfg, map[string]string{".dockercfg": `hunter2`}, ""},
		"no base64":    {corev1.SecretTypeDockercfg, map[string]string{".dockercfg": `{"r.example":{"auth":"hunter2"}}`}, ""},
		"nothing":      {corev1.SecretTypeDockerConfigJson, nil, ""},
	} {
		secret := &corev1.Secret{Type: test.kind, Data: map[string][]byte{}}
		for key, value := range test.data {
			secret.Data[key] = []byte(value)
		}
		got, err := credentials(secret)
		switch {
		case test.want == "":
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || len(got) != 1 || got[0].username+":"+got[0].password != test.want:
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
