package pod

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/volume"
)

// secrets are the secrets of a namespace, by name.
type secrets map[string]*corev1.Secret

func (s secrets) Secret(_ context.Context, name string) (*corev1.Secret, error) {
	if s[name] == nil {
		return nil, volume.NotFound("secret", name)
	}
	return s[name], nil
}

func (s secrets) ConfigMap(_ context.Context, name string) (*corev1.ConfigMap, error) {
	return nil, volume.NotFound("configmap", name)
}

func (secrets) Changed() <-chan struct{} { return nil }

// TestPullSecretsAreTried: the pod's secrets for the image are tried in turn, and a missing one is reported.
func TestPullSecretsAreTried(t *testing.T) {
	config := func(place, user string) *corev1.Secret {
		return &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{
			".dockerconfigjson": []byte(`{"auths":{"` + place + `":{"username":"` + user + `","password":"p"}}}`),
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		fake, pod := newFake(), testpod.New("Always", "a")
		pod.Spec.Containers[0].Image = "r.example/a/b:1"
		for _, name := range []string{"wide", "none", "opaque", "other", "narrow"} {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
		}
		fake.pulls["r.example/a/b:1"] = []error{errors.New("unauthorized")}
		s := supervise(t, fake, pod, func(o *Options) {
			o.Objects = secrets{"wide": config("r.example", "wide"), "other": config("elsewhere", "other"),
				"narrow": config("r.example/a", "narrow"), "opaque": {Type: corev1.SecretTypeOpaque}}
		})
		want := []string{"PullImage r.example/a/b:1 narrow", "PullImage r.example/a/b:1 wide"}
		if diff := cmp.Diff(want, fake.called("PullImage")); diff != "" {
			t.Error(diff)
		}
		told := false
		for _, e := range s.events {
			told = told || e.Reason == "FailedToRetrieveImagePullSecret" && strings.Contains(e.Message, "(none, opaque)")
		}
		if !told {
			t.Errorf("no event for the secrets without credentials: %+v", s.events)
		}
	})
}
