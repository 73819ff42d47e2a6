package podapi

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The limits for reading or refusing any file.
const (
	mostCPU    = time.Second
	mostMemory = 200 << 20 // bytes
)

// bombChild makes a test's child read its standard input.
const bombChild = "BULKHEAD_TEST_BOMB"

func TestMain(m *testing.M) {
	if os.Getenv(bombChild) == "" {
		os.Exit(m.Run())
	}
	// Limit the damage of a regression to the child.
	_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: 4 << 30, Max: 4 << 30})
	data, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, err = Read("bomb.yaml", data)
	}
	if err != nil {
		fmt.Println(err)
	}
}

// repeat formats the numbers from 0 to n-1.
func repeat(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestBombs: small files that expand to much are refused in little time and memory. Each is measured in its own
// process.
func TestBombs(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: c, image: i}]\n"
	deployment := func(i int, replicas int, rest string) string {
		return fmt.Sprintf("---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w%d}\n"+
			"spec: {replicas: %d, template: {spec: {containers: [{name: c, image: i%s}]}}}\n",
			i, replicas, rest)
	}
	set := func(replicas, templates int, labels string) string {
		return fmt.Sprintf("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: s}\n"+
			"spec: {replicas: %d, serviceName: s, selector: {matchLabels: {%s}}, template: {metadata: {labels: {%s}}, "+
			"spec: {containers: [{name: c, image: i}]}}, volumeClaimTemplates: [%s]}\n",
			replicas, labels, labels, repeat(templates,
				"{metadata: {name: t%d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}, "))
	}
	for _, test := range []struct {
		name string
		text string
		want string // in the error; empty for an acceptable file
	}{
		{name: "a long string, many times", want: "more than",
			text: pod + "x: [&a " + strings.Repeat("x", 400_000) + strings.Repeat(", *a", 12_000) + "]\n"},
		{name: "in a ConfigMap", want: "more than",
			text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: &a " + strings.Repeat("x", 400_000) + "\n" +
				repeat(3000, "  k%d: *a\n")},
		{name: "several documents", want: "more than",
			text: strings.Repeat("---\n"+pod+"x: [&a "+strings.Repeat("x", 40_000)+strings.Repeat(", *a", 200)+"]\n", 3)},
		{name: "a long file", want: "the limit is 3145728",
			text: pod + strings.Repeat("# nothing\n", 320_000)},
		{name: "lists of lists", want: "more than",
			text: pod + "x0: &x0 [a,a,a,a,a,a,a,a,a]\n" + lists(9)},
		{name: "merged maps", want: "more than",
			text: pod + "x0: &x0 {" + strings.Join(strings.Fields(repeat(20_000, "k%d:\u00a0v ")), ", ") + "}\n" + repeat(5000, "y%d: {<<: *x0}\n")},
		{name: "aliases that nest", want: "nested",
			text: pod + "y0: &y0 [a]\n" + nest(60, 2000)},
		{name: "deep", want: "nested",
			text: pod + "x: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "\n"},
		{name: "an alias of itself", want: "contains itself",
			text: pod + "x: &x [*x, *x]\n"},
		{name: "documents", want: "documents",
			text: strings.Repeat("---\n", 110_000)},
		{name: "faults", want: "(and 97 more)",
			text: pod + repeat(40_000, "x%d: 1\n")},
		{name: "repeated keys", want: "already set",
			text: pod + strings.Repeat("x: 1\n", 80_000)},
		{name: "quantities", want: "",
			text: strings.Replace(pod, "image: i", "image: i, resources: {limits: {cpu: 1e999999999, memory: 1e-999999999}}", 1)},
		{name: "workloads", want: "pods",
			text: repeat(900, strings.Replace(deployment(0, 100, ""), "w0", "w%d", 1))},
		{name: "replicas of much", want: "more than",
			text: deployment(0, 100, ", env: ["+repeat(20_000, "{name: A%d},")+"]") +
				deployment(1, 100, ", env: ["+repeat(8_000, "{name: A%d},")+"]")},
		{name: "labels of many claims", want: "more than",
			text: set(1, 2000, repeat(5000, "l%d: v, "))},
		{name: "claims", want: "more than",
			text: set(100, 500, "app: db")},
		{name: "claims as many as there may be",
			text: set(100, 10, "app: db")},
		{name: "a long name", want: "metadata.name",
			text: strings.Replace(pod, "name: web", "name: "+strings.Repeat("X", 400_000), 1)},
		{name: "a list of little", want: "x: unknown field",
			text: pod + "x: [" + strings.Repeat("a,", 220_000) + "]\n"},
		{name: "replicas of as much as there may be", want: "",
			text: deployment(0, 20, ", env: ["+repeat(9_000, "{name: A%d},")+"]")},
		{name: "a large ConfigMap",
			text: pod + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: |\n" +
				strings.Repeat("    a line, of text: [x]\n", 40_000)},
		{name: "many Pods",
			text: repeat(500, "---\n"+strings.Replace(pod, "name: web", "name: web-%d", 1))},
		{name: "anchors as people use them",
			text: strings.Replace(pod, "[{name: c, image: i}]",
				"\n  - &c {name: c, image: i, env: &env [{name: A, value: b}]}\n  - {<<: *c, name: d, env: *env}", 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := measured(t, test.text)
			if len(out) > 8<<10 {
				t.Errorf("an error of %d bytes", len(out))
			}
			if (test.want == "") != (len(out) == 0) || !strings.Contains(out, test.want) {
				t.Errorf("error %.300q, want %q", out, test.want)
			}
		})
	}
}

// measured reads text in its own process and returns the output. With the race detector, which takes ten times the
// memory, it reads the text in this process without measuring.
func measured(t *testing.T, text string) string {
	t.Helper()
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		if _, err := Read("bomb.yaml", []byte(text)); err != nil {
			return err.Error()
		}
		return ""
	}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), bombChild+"=1")
	child.Stdin = strings.NewReader(text)
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %.500s", err, out)
	}
	state := child.ProcessState
	cpu, memory := state.UserTime()+state.SystemTime(), state.SysUsage().(*syscall.Rusage).Maxrss<<10
	t.Logf("%d bytes: %v, %d MiB", len(text), cpu, memory>>20)
	if cpu > mostCPU || memory > mostMemory {
		t.Errorf("%d bytes took %v and %d MiB", len(text), cpu, memory>>20)
	}
	return string(out)
}

// lists returns n lists that each contain the previous one nine times.
func lists(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		one := fmt.Sprintf("*x%d", i-1)
		fmt.Fprintf(&b, "x%d: &x%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(one+",", 9), ","))
	}
	return b.String()
}

// nest returns n lists that wrap the previous one depth times.
func nest(n, depth int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "y%d: &y%d %s*y%d %s\n", i, i, strings.Repeat("[", depth), i-1, strings.Repeat("]", depth))
	}
	return b.String()
}
