package podapi

import (
	"errors"
	"strings"
	"testing"
)

// withVolume is a pod with one volume.
func withVolume(source string) string {
	return head + "    resources: {limits: {cpu: 1}}\n  volumes:\n  - {name: v, " + source + "}\n"
}

func withEnv(env string) string { return head + "    " + env + "\n" }

func TestReadChecksVolumesAndEnvironments(t *testing.T) {
	for _, tc := range []struct {
		name, text, want string // empty: accepted
	}{
		{"config map", withVolume("configMap: {name: c, defaultMode: 0400, optional: true, items: [{key: a, path: x/y, mode: 0777}]}"), ""},
		{"secret", withVolume("secret: {secretName: s}"), ""},
		{"downward", withVolume("downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}, {path: u, fieldRef: {fieldPath: metadata.uid}}, {path: c, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 1m}}]}"), ""},
		{"projected", withVolume("projected: {sources: [{configMap: {name: c}}, {secret: {name: s, items: [{key: k, path: p}]}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}"), ""},
		{"env", withEnv(`env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k, optional: true}}}, {name: B, valueFrom: {secretKeyRef: {name: s, key: .k}}}, {name: C, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}, {name: D, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['Big/Key']"}}}]`), ""},
		{"envFrom", withEnv(`envFrom: [{prefix: P_, configMapRef: {name: c}}, {secretRef: {name: s, optional: true}}]`), ""},

		{"mode", withVolume("configMap: {name: c, defaultMode: 01000}"), "configMap.defaultMode: 512 is not between"},
		{"item mode", withVolume("secret: {secretName: c, items: [{key: a, path: b, mode: -1}]}"), "secret.items[0].mode: -1"},
		{"no name", withVolume("configMap: {}"), "configMap.name: is required"},
		{"no secret name", withVolume("secret: {}"), "secret.secretName: is required"},
		{"no path", withVolume("configMap: {name: c, items: [{key: a}]}"), "items[0].path: is required"},
		{"absolute", withVolume("configMap: {name: c, items: [{key: a, path: /b}]}"), `"/b" is not a path within a volume`},
		{"out", withVolume("configMap: {name: c, items: [{key: a, path: b/../../c}]}"), "is not a path within a volume"},
		{"layout", withVolume("configMap: {name: c, items: [{key: a, path: ..data}]}"), "is not a path within a volume"},
		{"key", withVolume("configMap: {name: c, items: [{key: a/b, path: b}]}"), "items[0].key"},
		{"two kinds", withVolume("configMap: {name: c}, secret: {secretName: s}"), "is of more than one kind"},
		{"two sources", withVolume("projected: {sources: [{configMap: {name: c}, secret: {name: s}}]}"), "sources[0]: is of more than one kind"},
		{"twice", withVolume("projected: {sources: [{configMap: {name: c, items: [{key: a, path: x}]}}, {secret: {name: s, items: [{key: k, path: x}]}}]}"), `"x" is there twice`},
		{"token", withVolume("projected: {sources: [{serviceAccountToken: {path: t}}]}"), "sources[0].serviceAccountToken: is not honoured: without an API server"},
		{"status", withVolume("downwardAPI: {items: [{path: l, fieldRef: {fieldPath: status.podIP}}]}"), `"status.podIP" is not a field that can be referred to here`},
		{"no container", withVolume("downwardAPI: {items: [{path: l, resourceFieldRef: {resource: limits.cpu}}]}"), "containerName: is required"},
		{"unknown container", withVolume("downwardAPI: {items: [{path: l, resourceFieldRef: {resource: limits.cpu, containerName: x}}]}"), `there is no container "x"`},
		{"no source", withVolume("downwardAPI: {items: [{path: l}]}"), "items[0]: names no source"},
		{"user", withVolume("secret: {secretName: s, defaultUser: 5}"), "defaultUser: is not honoured: alpha"},

		{"divisor", withEnv("env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1m}}}]"), "divisor: 1m is not one of"},
		{"cpu divisor", withEnv("env: [{name: A, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1Mi}}}]"), "divisor: 1Mi is not one of"},
		{"resource", withEnv("env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.gpu}}}]"), `"limits.gpu" is not a resource`},
		{"sources", withEnv("env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {name: s, key: k}}}]"), "valueFrom: names more than one source"},
		{"value too", withEnv("env: [{name: A, value: x, valueFrom: {secretKeyRef: {name: s, key: k}}}]"), "cannot be together with value"},
		{"nothing", withEnv("env: [{name: A, valueFrom: {}}]"), "valueFrom: names no source"},
		{"labels", withEnv("env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]"), "is not a field for an environment variable"},
		{"no key", withEnv("env: [{name: A, valueFrom: {configMapKeyRef: {name: s}}}]"), "configMapKeyRef.key: is required"},
		{"file", withEnv("env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}]"), "fileKeyRef: is not honoured"},
		{"prefix", withEnv(`envFrom: [{prefix: "a=", configMapRef: {name: c}}]`), "envFrom[0].prefix"},
		{"envFrom nothing", withEnv("envFrom: [{prefix: a}]"), "envFrom[0]: names no source"},
		{"envFrom both", withEnv("envFrom: [{configMapRef: {name: c}, secretRef: {name: s}}]"), "cannot be together with configMapRef"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read("f.yaml", []byte(tc.text))
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			case err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNotHonoured):
				t.Errorf("class of %v", err)
			}
		})
	}
}
