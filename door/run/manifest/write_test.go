package manifest

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// TestWritten decodes pods and writes them again, as short as before.
func TestWritten(t *testing.T) {
	const given = `apiVersion: v1
kind: Pod
metadata:
  labels:
    app: web
  name: web
spec:
  containers:
  - args:
    - -c
    - exec httpd
    command:
    - sh
    env:
    - name: A
      value: b=c
    image: localhost/web:1
    name: web
    ports:
    - containerPort: 80
      name: http
    resources:
      limits:
        memory: 64Mi
    volumeMounts:
    - mountPath: /data
      name: data
  - image: localhost/side:1
    name: side
  terminationGracePeriodSeconds: 5
  volumes:
  - emptyDir: {}
    name: data
`
	pods, err := podapi.Decode("given", []byte(given))
	if err != nil {
		t.Fatal(err)
	}
	pods[0].UID = "set by us"
	got, err := written(pods[0])
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(given, string(text)); diff != "" {
		t.Error(diff)
	}
}

// TestWrittenExamples decodes and writes every example, and expects the same pod.
func TestWrittenExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pods, err := podapi.Decode(file, data)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods {
			fields, err := written(p)
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			text, err := yaml.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			again, err := podapi.Decode(file, text)
			if err != nil || !reflect.DeepEqual(plainPod(again[0]), plainPod(p)) {
				t.Errorf("%s: pod %s is another one: %v\n%s", file, p.Name, err, text)
			}
		}
	}
}
