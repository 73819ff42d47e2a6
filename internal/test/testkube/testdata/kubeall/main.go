// Command kubeall is etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl in one program,
// each unchanged; the first argument selects one. Tests run them. It is a module of its own, so that Bulkhead does not
// depend on them.
package main

import (
	"context"
	"fmt"
	"os"
	_ "time/tzdata" // as Kubernetes' own programs have it

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // as Kubernetes' own programs have it
	_ "k8s.io/component-base/metrics/prometheus/version"  // likewise
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// commands create a program's command. Only the selected one is created: flags and feature gates belong to the whole
// process.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 func() *cobra.Command { return kubectl.NewDefaultKubectlCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "kubeall: which program?")
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	if os.Args[0] == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command, ok := commands[os.Args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "kubeall: no program %q\n", os.Args[0])
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
