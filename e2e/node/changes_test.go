package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// testServices: a pod has the variables of the Services of its namespace, and one that wants none those of the API
// server.
func (w *world) testServices(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "my-web"}}
	service.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 8080}}
	made, err := w.Client.CoreV1().Services(ns).Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const command = `command: [sh, -c, "echo $MY_WEB_SERVICE_HOST $MY_WEB_PORT_8080_TCP_PORT; echo $KUBERNETES_SERVICE_PORT; exec sleep 1000"]`
	w.pod(ctx, t, "linked", `{containers: [{name: c, `+command+`}]}`)
	w.pod(ctx, t, "unlinked", `{enableServiceLinks: false, containers: [{name: c, `+command+`}]}`)
	w.says(ctx, t, "linked", corev1.PodLogOptions{}, made.Spec.ClusterIP+" 8080\n443\n")
	w.says(ctx, t, "unlinked", corev1.PodLogOptions{}, "\n443\n")
	for _, name := range []string{"linked", "unlinked"} {
		w.typed(ctx, t, "", "delete", "pod", name, "--grace-period=1")
	}
	if err := w.Client.CoreV1().Services(ns).Delete(ctx, "my-web", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
