package podapi

import (
	"errors"
	"strings"
	"testing"
)

// withVolume returns a pod with one volume.
func withVolume(source string) string {
	return head + "    resources: {limits: {cpu: 1}}\n  volumes:\n  - {name: v, " + source + "}\n"
}

func withEnv(env string) string { return head + "    " + env + "\n" }

func TestReadChecksVolumesAndEnvironments(t *testing.T) {
	for _, tc := range []struct {
		name, text, want string // empty: accepted
	}{
		{name: "config map", text: withVolume("configMap: {name: c, defaultMode: 0400, optional: true, items: [{key: a, path: x/y, mode: " +
			"0777}]}")},
		{name: "secret", text: withVolume("secret: {secretName: s}")},
		{name: "downward", text: withVolume("downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}, {path: u, fieldRef: " +
			"{fieldPath: metadata.uid}}, {path: c, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 1m}}]}")},
		{name: "projected", text: withVolume("projected: {sources: [{configMap: {name: c}}, {secret: {name: s, items: [{key: k, path: p}]}}, " +
			"{downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}")},
		{name: "env", text: withEnv(`env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k, optional: true}}}, ` +
			`{name: B, valueFrom: {secretKeyRef: {name: s, key: .k}}}, ` +
			`{name: C, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}, ` +
			`{name: D, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['Big/Key']"}}}]`)},
		{name: "envFrom", text: withEnv(`envFrom: [{prefix: P_, configMapRef: {name: c}}, {secretRef: {name: s, optional: true}}]`)},

		{name: "mode", text: withVolume("configMap: {name: c, defaultMode: 01000}"), want: "configMap.defaultMode: 512 is not between"},
		{name: "item mode", text: withVolume("secret: {secretName: c, items: [{key: a, path: b, mode: -1}]}"), want: "secret.items[0].mode: -1"},
		{name: "no name", text: withVolume("configMap: {}"), want: "configMap.name: is required"},
		{name: "no secret name", text: withVolume("secret: {}"), want: "secret.secretName: is required"},
		{name: "no path", text: withVolume("configMap: {name: c, items: [{key: a}]}"), want: "items[0].path: is required"},
		{name: "absolute", text: withVolume("configMap: {name: c, items: [{key: a, path: /b}]}"), want: `"/b" is not a path within a volume`},
		{name: "out", text: withVolume("configMap: {name: c, items: [{key: a, path: b/../../c}]}"), want: "is not a path within a volume"},
		{name: "layout", text: withVolume("configMap: {name: c, items: [{key: a, path: ..data}]}"), want: "is not a path within a volume"},
		{name: "key", text: withVolume("configMap: {name: c, items: [{key: a/b, path: b}]}"), want: "items[0].key"},
		{name: "two kinds", text: withVolume("configMap: {name: c}, secret: {secretName: s}"), want: "is of more than one kind"},
		{name: "two sources", text: withVolume("projected: {sources: [{configMap: {name: c}, secret: {name: s}}]}"),
			want: "sources[0]: is of more than one kind"},
		{name: "twice", text: withVolume("projected: {sources: [{configMap: {name: c, items: [{key: a, path: x}]}}, {secret: {name: s, items: " +
			"[{key: k, path: x}]}}]}"), want: `"x" appears twice`},
		{name: "token", text: withVolume("projected: {sources: [{serviceAccountToken: {path: t}}]}"),
			want: "sources[0].serviceAccountToken: is not honoured: without an API server"},
		{name: "status", text: withVolume("downwardAPI: {items: [{path: l, fieldRef: {fieldPath: status.podIP}}]}"),
			want: `"status.podIP" is not a field that can be referred to here`},
		{name: "no container", text: withVolume("downwardAPI: {items: [{path: l, resourceFieldRef: {resource: limits.cpu}}]}"),
			want: "containerName: is required"},
		{name: "unknown container", text: withVolume("downwardAPI: {items: [{path: l, resourceFieldRef: {resource: limits.cpu, containerName: " +
			"x}}]}"), want: `there is no container "x"`},
		{name: "no source", text: withVolume("downwardAPI: {items: [{path: l}]}"), want: "items[0]: names no source"},
		{name: "user", text: withVolume("secret: {secretName: s, defaultUser: 5}"), want: "defaultUser: is not honoured: alpha"},

		{name: "divisor", text: withEnv("env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1m}}}]"),
			want: "divisor: 1m is not one of"},
		{name: "cpu divisor", text: withEnv("env: [{name: A, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1Mi}}}]"),
			want: "divisor: 1Mi is not one of"},
		{name: "resource", text: withEnv("env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.gpu}}}]"),
			want: `"limits.gpu" is not a resource`},
		{name: "sources", text: withEnv("env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {name: s, key: " +
			"k}}}]"), want: "valueFrom: names more than one source"},
		{name: "value too", text: withEnv("env: [{name: A, value: x, valueFrom: {secretKeyRef: {name: s, key: k}}}]"),
			want: "cannot be together with value"},
		{name: "nothing", text: withEnv("env: [{name: A, valueFrom: {}}]"), want: "valueFrom: names no source"},
		{name: "labels", text: withEnv("env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]"),
			want: "is not a field for an environment variable"},
		{name: "no key", text: withEnv("env: [{name: A, valueFrom: {configMapKeyRef: {name: s}}}]"), want: "configMapKeyRef.key: is required"},
		{name: "file", text: withEnv("env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}]"),
			want: "fileKeyRef: is not honoured"},
		{name: "prefix", text: withEnv(`envFrom: [{prefix: "a=", configMapRef: {name: c}}]`), want: "envFrom[0].prefix"},
		{name: "envFrom nothing", text: withEnv("envFrom: [{prefix: a}]"), want: "envFrom[0]: names no source"},
		{name: "envFrom both", text: withEnv("envFrom: [{configMapRef: {name: c}, secretRef: {name: s}}]"),
			want: "cannot be together with configMapRef"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read("f.yaml", []byte(tc.text))
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			case err != nil && !errors.Is(err, errInvalid) && !errors.Is(err, errNotHonoured):
				t.Errorf("class of %v", err)
			}
		})
	}
}
