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
		{place: "registry.example", image: "registry.example/a/b:1", want: true},
		{place: "https://registry.example", image: "registry.example/a", want: true},
		{place: "http://registry.example/v2/", image: "registry.example/a", want: true},
		{place: "https://registry.example/v1", image: "registry.example/a", want: true},
		{place: "registry.example/a", image: "registry.example/a/b", want: true},
		{place: "registry.example/a", image: "registry.example/b"},
		{place: "registry.example:5000", image: "registry.example/a"},
		{place: "registry.example:5000", image: "registry.example:5000/a", want: true},
		{place: "*.example", image: "registry.example/a", want: true},
		{place: "*.example", image: "a.b.example/a"},
		{place: "re*.example", image: "registry.example/a", want: true},
		{place: "example", image: "registry.example/a"},
		{place: "https://index.docker.io/v1/", image: "busybox", want: true},
		{place: "https://index.docker.io/v1/", image: "library/busybox:1", want: true},
		{place: "https://index.docker.io/v1/", image: "docker.io/library/busybox", want: true},
		{place: "https://index.docker.io/v1/", image: "registry.example/busybox"},
		{place: "https://index.docker.io/v1/", image: "localhost/busybox"},
		{place: "localhost", image: "localhost/busybox", want: true},
		{place: "127.0.0.1:5000", image: "127.0.0.1:5000/busybox", want: true},
		{image: "registry.example/a"},
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
		"auth": {kind: corev1.SecretTypeDockerConfigJson,
			data: map[string]string{".dockerconfigjson": `{"auths":{"r.example":{"auth":"` + auth + `"}}}`}, want: "me:pa:ss"},
		"fields": {kind: corev1.SecretTypeDockerConfigJson,
			data: map[string]string{".dockerconfigjson": `{"auths":{"r.example":{"username":"me","password":"x"}}}`}, want: "me:x"},
		"the old form": {kind: corev1.SecretTypeDockercfg,
			data: map[string]string{".dockercfg": `{"r.example":{"username":"me","password":"x"}}`}, want: "me:x"},
		"another type": {kind: corev1.SecretTypeOpaque, data: map[string]string{".dockercfg": `{}`}},
		"not JSON":     {kind: corev1.SecretTypeDockercfg, data: map[string]string{".dockercfg": `hunter2`}},
		"no base64":    {kind: corev1.SecretTypeDockercfg, data: map[string]string{".dockercfg": `{"r.example":{"auth":"hunter2"}}`}},
		"nothing":      {kind: corev1.SecretTypeDockerConfigJson},
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
