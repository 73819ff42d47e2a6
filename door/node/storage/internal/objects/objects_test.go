package objects

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/bulkhead-project/bulkhead/volume"
)

// world is a cache over a fake API server.
type world struct {
	*Cache
	client *fake.Clientset

	mu    sync.Mutex
	woken map[types.UID]int
}

// wakes returns how often a pod was woken.
func (w *world) wakes(uid types.UID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.woken[uid]
}

func inWorld(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{client: fake.NewClientset(), woken: map[types.UID]int{}}
		w.Cache = New(Options{Client: w.client, Wake: func(uid types.UID) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.woken[uid]++
		}})
		defer w.Close()
		test(t, w)
	})
}

// pod returns a pod that refers to the Secret s and the ConfigMap c.
func pod(uid types.UID) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: uid}}
	p.Spec.ServiceAccountName = "robot"
	p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
	p.Spec.Containers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}},
	}}}
	return p
}

func secretOf(name, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string][]byte{"k": []byte(value)}}
}

// referenced reports whether a request with that field selector is for an object of the tests' pods.
func referenced(a clienttesting.Action, fields string) bool {
	if a.GetResource().Resource == "services" {
		return a.GetNamespace() == "default" && fields == ""
	}
	return fields == "metadata.name=s" || fields == "metadata.name=c"
}

// TestOnlyWhatIsReferenced: the cache requests only the objects that pods refer to, each by its name, once for all
// pods, and only while a pod refers to it.
func TestOnlyWhatIsReferenced(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, o := range []runtime.Object{secretOf("s", "1"), secretOf("other", "2")} {
			if err := w.client.Tracker().Add(o); err != nil {
				t.Fatal(err)
			}
		}
		one, release := w.Of(pod("1"))
		_, release2 := w.Of(pod("2"))
		synctest.Wait()
		watches := 0
		for _, a := range w.client.Actions() {
			switch a := a.(type) {
			case clienttesting.ListAction:
				if f := a.GetListRestrictions().Fields.String(); !referenced(a, f) {
					t.Errorf("a list of %s with %q", a.GetResource().Resource, f)
				}
			case clienttesting.WatchAction:
				watches++
				if f := a.GetWatchRestrictions().Fields.String(); !referenced(a, f) {
					t.Errorf("a watch of %s with %q", a.GetResource().Resource, f)
				}
			default:
				t.Errorf("%v", a)
			}
		}
		if watches != 3 {
			t.Errorf("%d watches", watches)
		}
		if _, err := one.Secret(t.Context(), "other"); !errors.Is(err, volume.ErrNotFound) {
			t.Errorf("an unreferenced object: %v", err)
		}
		release()
		release2()
		synctest.Wait()
		w.Cache.mu.Lock()
		defer w.Cache.mu.Unlock()
		if len(w.items)+len(w.views) > 0 {
			t.Errorf("%d objects and %d pods are left", len(w.items), len(w.views))
		}
	})
}

// TestRefer: an ephemeral container's objects are watched as well, until the pod has ended.
func TestRefer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if err := w.client.Tracker().Add(secretOf("other", "2")); err != nil {
			t.Fatal(err)
		}
		debugged := pod("1")
		debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "other"}}}},
		}}}
		w.Refer(debugged) // it does not run
		own, release := w.Of(pod("1"))
		if _, err := own.Secret(t.Context(), "other"); !errors.Is(err, volume.ErrNotFound) {
			t.Errorf("before a pod refers to it: %v", err)
		}
		w.Refer(debugged)
		w.Refer(debugged)
		if got, err := own.Secret(t.Context(), "other"); err != nil || string(got.Data["k"]) != "2" {
			t.Errorf("%v, %v", got, err)
		}
		release()
		synctest.Wait()
		w.Cache.mu.Lock()
		defer w.Cache.mu.Unlock()
		if len(w.items)+len(w.views) > 0 {
			t.Errorf("%d objects and %d pods are left", len(w.items), len(w.views))
		}
	})
}

// TestLate: an object that is missing at first wakes the pod when it is created, changed and deleted.
func TestLate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		own, release := w.Of(pod("1"))
		defer release()
		synctest.Wait()
		if !w.Known(pod("1")) {
			t.Error("the missing object does not count as known")
		}
		if _, err := own.Secret(t.Context(), "s"); !errors.Is(err, volume.ErrNotFound) {
			t.Errorf("before it is created: %v", err)
		}
		resource := corev1.SchemeGroupVersion.WithResource("secrets")
		for _, step := range []struct {
			do   func() error
			want string
		}{
			{func() error { return w.client.Tracker().Add(secretOf("s", "1")) }, "1"},
			{func() error { return w.client.Tracker().Update(resource, secretOf("s", "2"), "default") }, "2"},
			{func() error { return w.client.Tracker().Delete(resource, "default", "s") }, ""},
		} {
			changed, before := own.Changed(), w.wakes("1")
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			select {
			case <-changed:
			default:
				t.Errorf("%q: the change was not notified", step.want)
			}
			got, err := own.Secret(t.Context(), "s")
			if w.wakes("1") == before || step.want == "" && !errors.Is(err, volume.ErrNotFound) ||
				step.want != "" && (err != nil || string(got.Data["k"]) != step.want) {
				t.Errorf("%q: %v, %v, woken %d times", step.want, got, err, w.wakes("1")-before)
			}
		}
	})
}

// TestSilence: an API server that does not answer delays a pod by two seconds. The error does not match NotFound. A pod
// that never ran leaves nothing.
func TestSilence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("down")
		})
		if w.Known(pod("1")) {
			t.Error("known before the API server has answered")
		}
		own, release := w.Of(pod("1"))
		began := time.Now()
		_, err := own.Secret(t.Context(), "s")
		if err == nil || errors.Is(err, volume.ErrNotFound) || time.Since(began) != patience {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		release()
		_ = w.Known(pod("2"))
		w.Forget("2")
		synctest.Wait()
		if len(w.views) > 0 {
			t.Error("a pod that never ran is kept")
		}
	})
}

// TestTokens: a token is requested once, bound to the pod, and replaced before it expires. If it cannot be replaced, it
// is used until it expires.
func TestTokens(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		issued, fail := 0, error(nil)
		w.client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
			r := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
			if ref := r.Spec.BoundObjectRef; ref.UID != "1" || ref.Kind != "Pod" || r.Spec.Audiences[0] != "vault" {
				t.Errorf("asked for %+v", r.Spec)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if fail != nil {
				return true, nil, fail
			}
			issued++
			r.Status = authenticationv1.TokenRequestStatus{
				Token: strings.Repeat("x", issued), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
			}
			return true, r, nil
		})
		own, release := w.Of(pod("1"))
		defer release()
		source := &corev1.ServiceAccountTokenProjection{Audience: "vault", Path: "t"}
		get := func() string {
			text, err := own.(volume.Tokens).Token(context.Background(), source)
			if err != nil {
				return err.Error()
			}
			return string(text)
		}
		if a, b := get(), get(); a != "x" || b != "x" {
			t.Errorf("tokens %q, %q", a, b)
		}
		changed := own.Changed()
		time.Sleep(49 * time.Minute)
		synctest.Wait()
		select {
		case <-changed:
		default:
			t.Error("its successor was not notified")
		}
		if got := get(); got != "xx" {
			t.Errorf("after 49 minutes: %q", got)
		}
		set := func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			fail = err
		}
		set(errors.New("down"))
		time.Sleep(57 * time.Minute)
		if got := get(); got != "xx" {
			t.Errorf("while no token is issued: %q", got)
		}
		time.Sleep(4 * time.Minute)
		if got := get(); !strings.Contains(got, "down") {
			t.Errorf("after its expiry: %q", got)
		}
		set(nil)
		time.Sleep(time.Minute)
		if got := get(); got != "xxx" {
			t.Errorf("when tokens are issued again: %q", got)
		}
	})
}

// TestTokensOfAnotherClock: tokens are requested as seldom and used as long if the API server's clock is hours off.
// While none is issued, the pauses grow.
func TestTokensOfAnotherClock(t *testing.T) {
	for name, off := range map[string]time.Duration{"behind": -2 * time.Hour, "ahead": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				asked, fail := 0, error(nil)
				w.client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
					r := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
					w.mu.Lock()
					defer w.mu.Unlock()
					if asked++; fail != nil {
						return true, nil, fail
					}
					life := time.Duration(*r.Spec.ExpirationSeconds) * time.Second
					r.Status = authenticationv1.TokenRequestStatus{Token: "x", ExpirationTimestamp: metav1.NewTime(time.Now().Add(off + life))}
					return true, r, nil
				})
				times := func(after time.Duration) int {
					w.mu.Lock()
					asked = 0
					w.mu.Unlock()
					time.Sleep(after)
					synctest.Wait()
					w.mu.Lock()
					defer w.mu.Unlock()
					return asked
				}
				own, release := w.Of(pod("1"))
				defer release()
				source := &corev1.ServiceAccountTokenProjection{Path: "t", ExpirationSeconds: new(int64(3600))}
				if text, err := own.(volume.Tokens).Token(context.Background(), source); err != nil || string(text) != "x" {
					t.Fatalf("%q, %v", text, err)
				}
				if n := times(10 * time.Hour); n < 12 || n > 13 {
					t.Errorf("%d requests in ten hours", n)
				}
				w.mu.Lock()
				fail = errors.New("down")
				w.mu.Unlock()
				if n := times(11 * time.Hour); n < 500 || n > 670 {
					t.Errorf("%d requests in eleven hours without an issued token", n)
				}
			})
		})
	}
}
