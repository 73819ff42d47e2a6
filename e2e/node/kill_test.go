package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testfaults"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// killPoints are the fault points of a pod's start and end on a node, in order.
var killPoints = map[string][]string{
	"start": {
		"pod.saved", "claims.recorded", "claims.mounted", "run.reserve", "run.store", "journal.network", "cni.recorded", "cni.added",
		"shim.recorded", "shim.spawned", "run.shim", "run.start", "run.ready", "container.recorded", "container.created", "container.started",
		"node.telling", "node.told",
	},
	"end": {
		"stop.killed", "undo.shim", "undone.network", "stop.recorded", "claims.unmounted", "pod.ended", "remove.marked", "unwind.undone",
		"remove.released", "pod.deleted", "node.deleting", "node.deleted",
	},
	"volume's start": {"csi.staging", "csi.staged", "csi.publishing", "csi.published"},
	"volume's end":   {"csi.unpublishing", "csi.unpublished", "csi.unstaging", "csi.unstaged"},
	// Points of a static pod.
	"file": {"pod.saved", "run.shim", "container.started", "mirror.making", "mirror.made", "node.telling", "node.told"},
	"no file": {
		"stop.killed", "pod.ended", "remove.marked", "pod.deleted", "mirror.deleting", "mirror.deleted",
	},
}

// killParts is the number of days until every cell was tested once. The cells in killAlways are tested every time: an
// unreported VM, a status that is being reported, and an object that is about to be deleted.
const killParts = 7

var killAlways = []string{"start/run.shim", "start/node.telling", "end/node.deleting"}

// testKill kills the node at a step of a pod's start or end. The next node completes the start or end, with exactly one
// VM or none.
func (w *world) testKill(t *testing.T) {
	bin, err := testfaults.Programs()
	if err != nil {
		t.Fatal(err)
	}
	w.node.Stop(t)
	w.faults, w.libexec = testfaults.Listen(t, filepath.Join(w.Dir, "faults")), bin
	w.serve()
	w.WaitNode(testdeadline.Context(t, time.Minute), t)
	driver := w.csiDisks(testdeadline.Context(t, 10*time.Second), t, "killed")
	w.apply(testdeadline.Context(t, time.Minute), t, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: victim},
  spec: {storageClassName: "", volumeName: pv-victim, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv-victim}, spec: {capacity: {storage: 1Gi}, storageClassName: "",
  accessModes: [ReadWriteOnce], claimRef: {namespace: default, name: victim}, hostPath: {path: %s}}}`, w.place(t, "victim")))
	cell := 0
	for _, stage := range []string{"start", "end", "file", "no file", "volume's start", "volume's end"} {
		for _, point := range killPoints[stage] {
			cell++
			if !testturn.Long() && cell%killParts != testturn.Day()%killParts &&
				!slices.Contains(killAlways, stage+"/"+point) && !strings.Contains(strings.Join(os.Args, " "), "TestNode/kill/") {
				continue
			}
			t.Run(stage+"/"+point, func(t *testing.T) {
				if strings.HasSuffix(stage, "file") {
					w.killStatic(t, stage, point)
				} else {
					w.kill(t, stage, point)
				}
			})
		}
	}
	ctx := testdeadline.Context(t, time.Minute) // and the last node keeps running
	w.pod(ctx, t, "after", `{containers: [{name: c, command: [sleep, "1000"]}]}`)
	w.ready(ctx, t, "after")
	w.csiLeft(ctx, t, driver)
}

// killAt runs do, kills the node at a fault point, and starts the next one.
func (w *world) killAt(ctx context.Context, t *testing.T, point string, do func()) {
	t.Helper()
	pid := w.node.PID()
	hit := w.faults.Arm(func(h fault.Hit) bool { return h.Point == point && h.PID == pid })
	defer w.faults.Disarm()
	do()
	select {
	case stopped := <-hit:
		w.node.Kill()
		stopped.Release()
		w.serve()
	case <-ctx.Done():
		t.Fatalf("the point %s was not reached", point)
	}
}

// killStatic kills the node at a step of a static pod's start or end, when its file is added or removed. The next node
// runs the pod once with one mirror, or removes both.
func (w *world) killStatic(t *testing.T, stage, point string) {
	ctx := testdeadline.Context(t, time.Minute)
	w.quiet(ctx, t)
	const name = "fixed-" + testkube.NodeName
	come := func() { w.manifest(t, "fixed", "words", "") }
	leave := func() { w.removeManifests(t) }
	t.Cleanup(leave)
	if stage == "file" {
		w.killAt(ctx, t, point, come)
	} else {
		come()
	}
	mirror := w.ready(ctx, t, name)
	if control.MirrorOf(mirror) == "" || mirror.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("its mirror is %v, %s", mirror.ObjectMeta, &mirror.Status)
	}
	w.expectLog(ctx, t, name, corev1.PodLogOptions{}, "words\n")
	if n := w.vms(t); n != 1 {
		t.Errorf("there are %d VMs", n)
	}
	if stage == "no file" {
		w.killAt(ctx, t, point, leave)
	} else {
		leave()
	}
	w.gone(ctx, t, name, 0)
}

func (w *world) kill(t *testing.T, stage, point string) {
	ctx := testdeadline.Context(t, time.Minute)
	w.quiet(ctx, t)
	api := w.Client.CoreV1().Pods(ns)
	strike := func(do func()) { w.killAt(ctx, t, point, do) }
	spec := csiSpec("victim") // a directory of the host
	if strings.HasPrefix(stage, "volume") {
		spec = csiSpec("killed")
	}
	start := func() { w.pod(ctx, t, "victim", spec) }
	end := func() {
		if err := api.Delete(ctx, "victim", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	if strings.HasSuffix(stage, "start") {
		strike(start)
	} else {
		start()
	}
	if pod := w.ready(ctx, t, "victim"); pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("its container was started again: %s", &pod.Status)
	}
	if _, errs, err := w.exec(ctx, "victim", corev1.PodExecOptions{Command: []string{"touch", "/v/f"}}, nil); err != nil {
		t.Errorf("exec: %v: %s", err, errs)
	}
	w.Wait(ctx, t, "the end of the operation", func(context.Context) error {
		if n := w.vms(t); n != 1 {
			return fmt.Errorf("there are %d VMs", n)
		}
		return nil
	})
	if strings.HasSuffix(stage, "end") {
		strike(end)
	} else {
		end()
	}
	w.gone(ctx, t, "victim", 0)
}
