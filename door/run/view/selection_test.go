package view

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

const workloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "x:1"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: web, namespace: test}
spec:
  template:
    metadata: {labels: {app: web, tier: back}}
    spec: {restartPolicy: Never, containers: [{name: c, image: "x:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-2}
spec: {containers: [{name: c, image: "x:1"}]}
`

func TestSelection(t *testing.T) {
	found, err := podapi.Read("workloads", []byte(workloads))
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"":                                  "default/web-0 default/web-1 test/web default/web-2",
		"namespace=test":                    "test/web",
		"selector=app%3Dweb":                "default/web-0 default/web-1 test/web",
		"selector=app%3Dweb,tier!%3Dback":   "default/web-0 default/web-1",
		"selector=!app":                     "default/web-2",
		"selector=app+in+(web,db)":          "default/web-0 default/web-1 test/web",
		"kind=Deployment&workload=web":      "default/web-0 default/web-1", // and no pod with a similar name
		"kind=Job&workload=web":             "test/web",
		"kind=Job&workload=web&namespace=x": "",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		chosen, err := parseSelection(q)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		var names []string
		for _, p := range found.Pods {
			if chosen.has(p) {
				names = append(names, p.Namespace+"/"+p.Name)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if (selection{}).has(&corev1.Pod{}) != true {
		t.Error("no selection chooses not all")
	}
	if _, err := parseSelection(url.Values{"selector": {"app=="}}); err != nil {
		t.Errorf("an empty value: %v", err)
	}
	for _, q := range []url.Values{{"selector": {"a b"}}, {"kind": {"Deployment"}}, {"workload": {"web"}}} {
		if _, err := parseSelection(q); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%v: %v", q, err)
		}
	}
}
