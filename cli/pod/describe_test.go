package pod

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

const describedPod = `{
  "metadata": {"name": "web", "namespace": "default", "uid": "2e2e0289-eeb1",
    "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"app": "web", "tier": "front"}},
  "spec": {
    "restartPolicy": "Always",
    "containers": [{
      "name": "app", "image": "localhost/app:1", "command": ["sh", "-c", "sleep 9; echo"],
      "ports": [{"containerPort": 80, "protocol": "TCP", "name": "http"}],
      "env": [{"name": "A", "value": "1"}, {"name": "E"}, {"name": "S", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}],
      "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}, "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true}]
    }],
    "volumes": [{"name": "data", "emptyDir": {}}]
  },
  "status": {
    "phase": "Running", "podIP": "10.0.0.2",
    "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "not\u001b[31m ready"}],
    "containerStatuses": [{"name": "app", "ready": false, "restartCount": 3,
      "state": {"waiting": {"reason": "CrashLoopBackOff"}},
      "lastState": {"terminated": {"reason": "Error", "exitCode": 7, "message": "bad"}}}]
  }
}`

func TestDescribe(t *testing.T) {
	var p described
	if err := json.Unmarshal([]byte(describedPod), &p); err != nil {
		t.Fatal(err)
	}
	p.Metadata.CreationTimestamp = time.Time{} // it would be shown in the local zone
	var out bytes.Buffer
	out.WriteByte('\n')
	events := []api.Event{{
		Type:           "Warning",
		Reason:         "BackOff",
		Message:        "again",
		Count:          1,
		LastTimestamp:  time.Now(),
		InvolvedObject: api.ObjectReference{Name: "web", FieldPath: "spec.containers{app}"},
	}}
	if err := p.print(&out, events); err != nil {
		t.Fatal(err)
	}
	want := `
Name:              web
Namespace:         default
UID:               2e2e0289-eeb1
Labels:            app=web
                   tier=front
Status:            Running
IP:                10.0.0.2
Restart Policy:    Always
Containers:
  app:
    Image:         localhost/app:1
    Port:          80/TCP http
    Command:       sh -c "sleep 9; echo"
    State:         Waiting CrashLoopBackOff
    Last State:    Terminated Error exit code 7
      Message:     bad
    Ready:         false
    Restart Count: 3
    Limits:        cpu=500m
                   memory=64Mi
    Environment:
      A:           1
      E:           (empty)
      S:           <secretKeyRef key=k name=keys>
    Mounts:
      /data:       from data (ro)
Conditions:
  Ready:           False ContainersNotReady not[31m ready
Volumes:
  data:            emptyDir {}
Events:
SEEN  TYPE     REASON   CONTAINER  MESSAGE
0s    Warning  BackOff  app        again
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
