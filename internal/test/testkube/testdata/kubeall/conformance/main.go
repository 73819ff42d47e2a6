// Command conformance runs Kubernetes' own end-to-end tests of a node: the specifications of its packages common/node,
// common/storage and common/network. ginkgo runs them, selected by its flags.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"k8s.io/kubernetes/test/e2e/common" // and the specifications
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"   // what is shown of a failure
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init" // as the suite itself has it
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"    // likewise
)

// outcome records ginkgo's result, in place of a *testing.T.
type outcome struct{ failed bool }

func (o *outcome) Fail() { o.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	framework.TestContext.IPFamily = "ipv4"
	common.CurrentSuite = common.E2E
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	var o outcome
	if !ginkgo.RunSpecs(&o, "Kubernetes", suite, reporter) || o.failed {
		fmt.Fprintln(os.Stderr, "conformance: specifications fail")
		os.Exit(1)
	}
}
