package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/images"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// TestStarts: containers start one after the other, in the pod's order.
func TestStarts(t *testing.T) {
	check(t, []row{
		{name: "the first", words: "- -", want: "start c0"},
		{name: "the second", words: "run -", want: "start c1"},
		{name: "all run", words: "run run", want: ""},
		{name: "one is being started", words: "- -", want: "",
			change: func(s *State) { s.Starting = &Starting{Container: s.Containers[0], Sandbox: "vm2"} }},
		{name: "one was never started", words: "new run", want: "start c0"},
		{name: "a postStart hook runs", words: "run,hook -", want: ""},
		{name: "a postStart hook and an ephemeral container", words: "run,hook - e=-", want: "start c2"},
		{name: "a start has failed", words: "- -", want: "wake 10s; start c1",
			change: func(s *State) { s.Containers[0].Fail("RunContainerError", "", now) }},
		{name: "a start has failed for long enough", words: "- -", want: "start c0",
			change: func(s *State) { s.Containers[0].Fail("RunContainerError", "", now.Add(-10*time.Second)) }},
		{name: "an ephemeral container is started once", words: "run e=end:1", want: ""},
		{name: "an ephemeral container without its target", words: "end:0@5 e=-", policy: "Always",
			change: func(s *State) {
				s.Containers[1].Target = "c0"
				s.Containers[0].Restart.Next(now, now)
			},
			want: "wake 5s; delay c0; no target c1"},
		{name: "an ephemeral container with its target", words: "run e=-", want: "start c1",
			change: func(s *State) { s.Containers[1].Target = "c0" }},
	})
}

// TestInit: init containers run to their end in order, and sidecars start among them.
func TestInit(t *testing.T) {
	check(t, []row{
		{name: "the first", words: "i=- i=- -", want: "start c0"},
		{name: "the first runs", words: "i=run i=- -", want: ""},
		{name: "the second", words: "i=end:0 i=- -", want: "start c1"},
		{name: "all have ended", words: "i=end:0 i=end:0 -", want: "start c2"},
		{name: "a failed one is restarted", words: "i=end:1 -", want: "start c0"},
		{name: "a failed one ends the pod", policy: "Never", words: "i=end:1 -", want: "stop 30s"},
		{name: "a successful one is not restarted", words: "i=end:0 run", want: ""},
		{name: "it is done beside a regular container", words: "i=end:1 run", want: ""},
		{name: "a sidecar first", words: "s=- i=- -", want: "start c0"},
		{name: "after a sidecar", words: "s=run i=- -", want: "start c1"},
		{name: "a sidecar has not started", words: "s=run i=- -", want: "",
			change: func(s *State) { s.Containers[0].Spec.StartupProbe = &corev1.Probe{} }},
		{name: "a sidecar has started", words: "s=run i=- -", want: "start c1",
			change: func(s *State) {
				s.Containers[0].Spec.StartupProbe = &corev1.Probe{}
				s.Containers[0].Verdict.Started = true
			}},
		{name: "a sidecar has ended beside a later one", words: "s=end:0 i=run -", want: "start c0"},
		{name: "a sidecar has ended beside the regular ones", policy: "Never", words: "s=end:0 run", want: "start c0"},
		{name: "a sidecar after its initialisation", words: "s=run i=end:0 run", want: ""},
		{name: "again in a new VM", words: "i=old:0 i=old:0 lost", want: "start c0"},
		{name: "the second in a new VM", words: "i=end:0 i=old:0 lost", want: "start c1"},
	})
}

// TestRestarts: a container that has ended is restarted by its policy, with growing pauses.
func TestRestarts(t *testing.T) {
	late := func(s *State) { s.Containers[0].Restart.Next(now, now) }
	check(t, []row{
		{name: "always", words: "end:0", want: "start c0"},
		{name: "on failure, failed", policy: "OnFailure", words: "end:1", want: "start c0"},
		{name: "on failure, succeeded", policy: "OnFailure", words: "end:0", want: "stop 30s"},
		{name: "never", policy: "Never", words: "end:1", want: "stop 30s"},
		{name: "never, beside another one", policy: "Never", words: "end:1 run", want: ""},
		{name: "it waits", words: "end:1@3", change: late, want: "wake 7s; delay c0"},
		{name: "it waits further", words: "end:1@3", want: "wake 7s",
			change: func(s *State) {
				late(s)
				s.Containers[0].Failure = &Failure{Reason: CrashLoop}
			}},
		{name: "it has waited", words: "end:1@10", change: late, want: "start c0"},
		{name: "others do not wait", words: "end:1@3 -", change: late, want: "wake 7s; delay c0; start c1"},
		{name: "a resize does not wait", words: "end:1@3", want: "start c0",
			change: func(s *State) {
				late(s)
				s.Containers[0].Replaced = "c0"
			}},
		{name: "stopped by a probe", policy: "OnFailure", words: "end:0", want: "start c0",
			change: func(s *State) { s.Containers[0].Failing = "c0" }},
		{name: "a Job's last retry", policy: "Never", words: "end:1 run", want: "start c0", change: limit("1", 0)},
		{name: "a Job without retries ends its other containers", policy: "Never", words: "end:1 run", want: "stop 30s", change: limit("1", 1)},
	})
}

// limit sets the backoff limit of a Job's pod, and the restarts of its first container.
func limit(n string, restarts int32) func(*State) {
	return func(s *State) {
		s.Pod.Annotations = map[string]string{podspec.AnnotationBackoffLimit: n}
		s.Containers[0].Newest.Restarts = restarts
	}
}

// TestImages: images are pulled together, and the first starts follow the pod's order.
func TestImages(t *testing.T) {
	fail := func(reason string) func(*State) {
		return func(s *State) { s.Containers[0].Image.Fail(reason, "", now.Add(-4*time.Second)) }
	}
	check(t, []row{
		{name: "pulled before the sandbox is made", sandbox: "none", words: "-,pull -,pull", want: "make sandbox; pull c0; pull c1"},
		{name: "pulled during the initialisation", words: "i=run -,pull", want: "pull c1"},
		{name: "in order", words: "-,pull -", want: "pull c0"},
		{name: "in order, later", words: "-,pulling -", want: ""},
		{name: "an ephemeral container does not block", words: "run e=-,pulling e=-", want: "start c2"},
		{name: "a restart does not block", words: "end:1,pulling -", want: "start c1"},
		{name: "failed", words: "-,pull -", change: fail(images.ReasonPull), want: "wake 6s; pull late c0; skip c0; start c1"},
		{name: "failed before", words: "-,pull -", change: fail(images.ReasonBackOff), want: "wake 6s; skip c0; start c1"},
		{name: "skipped before", words: "-,pull -", want: "wake 6s; start c1",
			change: func(s *State) {
				fail(images.ReasonBackOff)(s)
				s.Containers[0].Tried = true
			}},
		{name: "pulled again", words: "-,pull -", want: "pull c0",
			change: func(s *State) { s.Containers[0].Image.Fail(images.ReasonBackOff, "", now.Add(-backoff.First)) }},
		{name: "not during a delay", words: "end:1,pull", want: "wake 10s; delay c0",
			change: func(s *State) { s.Containers[0].Restart.Next(now, now) }},
		{name: "not for a done container", policy: "Never", words: "end:0,pull run", want: ""},
		{name: "of a volume", words: "-", want: "pull files:1", change: volumeImage(&Image{})},
		{name: "of a volume, pulled", words: "-", want: "start c0", change: volumeImage(&Image{Found: &images.Image{}})},
		{name: "of a volume, pulling", words: "-", want: "", change: volumeImage(&Image{Pulling: true})},
	})
}

func volumeImage(image *Image) func(*State) {
	return func(s *State) {
		source := corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "files:1"}}
		s.Pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}}
		s.Images = map[string]*Image{"v": image}
	}
}

// TestFiles: the volumes of files are written before the first start, and rewritten beside the containers.
func TestFiles(t *testing.T) {
	files := func(f Files) func(*State) {
		return func(s *State) {
			f.Needed = true
			s.Files = f
		}
	}
	failed := Files{}
	failed.Fail("FailedMount", "", now.Add(-time.Second))
	check(t, []row{
		{name: "first", words: "-", change: files(Files{}), want: "write files"},
		{name: "being written", words: "-", change: files(Files{Writing: true}), want: ""},
		{name: "written", words: "-", change: files(Files{Written: true}), want: "start c0"},
		{name: "outdated", words: "-", change: files(Files{Written: true, Stale: true}), want: "write files; start c0"},
		{name: "being rewritten", words: "-", change: files(Files{Written: true, Stale: true, Writing: true}), want: "start c0"},
		{name: "failed", words: "-", change: files(failed), want: "wake 9s"},
	})
}
