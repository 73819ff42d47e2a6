package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// updated is the longest delay between the kubelet's write of a file and its appearance in the pod.
const updated = 2 * time.Second

// testVolumes: files of ConfigMaps and Secrets are updated in the pod.
func (w *world) testVolumes(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	core := w.Client.CoreV1()
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"key": "one"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{"key": "hush"}}
	if _, err := core.ConfigMaps(ns).Create(ctx, settings, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Secrets(ns).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.pod(ctx, t, "volumes", `{volumes: [{name: s, configMap: {name: settings}}, {name: h, secret: {secretName: secret, defaultMode: 256}},
    {name: d, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}],
  containers: [{name: c, command: [sleep, "1000"],
    env: [{name: KEY, valueFrom: {secretKeyRef: {name: secret, key: key}}}],
    volumeMounts: [{name: s, mountPath: /s}, {name: s, mountPath: /one, subPath: key},
      {name: h, mountPath: /h}, {name: d, mountPath: /d}]}]}`)
	pod := w.ready(ctx, t, "volumes")
	in := func(script string) string {
		out, errs, err := w.exec(ctx, "volumes", corev1.PodExecOptions{Command: []string{"sh", "-c", script}}, nil)
		if err != nil {
			t.Errorf("%s: %q, %v", script, errs, err)
		}
		return strings.TrimSpace(out)
	}
	if got := in("cat /s/key /one /h/key /d/name; echo $KEY; stat -L -c %a /h/key"); got != "oneonehushvolumeshush\n400" {
		t.Errorf("the files are %q", got)
	}
	settings.Data["key"], secret.StringData["key"] = "two", "hush, hush"
	if _, err := core.ConfigMaps(ns).Update(ctx, settings, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Secrets(ns).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []struct{ host, at, want string }{
		{"kubernetes.io~configmap/s/key", "/s/key", "two"}, {"kubernetes.io~secret/h/key", "/h/key", "hush, hush"},
	} {
		host := filepath.Join(w.KubeletRoot(), "pods", string(pod.UID), "volumes", file.host)
		w.Wait(ctx, t, "the kubelet to write "+file.host, func(context.Context) error {
			return is(file.want, func() (string, error) { b, err := os.ReadFile(host); return string(b), err })
		})
		began := time.Now()
		w.Wait(testdeadline.Context(t, updated), t, "the pod to have "+file.at, func(context.Context) error {
			return is(file.want, func() (string, error) { return in("cat " + file.at), nil })
		})
		t.Logf("%s was new after %v", file.at, time.Since(began))
	}
	if got := in("cat /one"); got != "one" {
		t.Errorf("a part of the volume is %q, and stays as it was", got)
	}
}

// is checks that get returns want.
func is(want string, get func() (string, error)) error {
	got, err := get()
	if err == nil && got != want {
		err = fmt.Errorf("it is %q, not %q", got, want)
	}
	return err
}
