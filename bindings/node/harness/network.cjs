'use strict';
/*
 * What a workspace may reach, as `@ai-sdk/harness` says it. Absent where the platform gives workspaces no
 * way out: adapters look whether the members are there.
 */

const { capabilityError } = require('./errors.cjs');

/* The members of a session for a workspace that can reach out; else none. */
async function createNetwork(workspace, { abortSignal } = {}) {
  const { available } = await workspace.inspectEgress({ signal: abortSignal });
  if (!available)
    return {};
  let last = Promise.resolve();
  /* One after the other, in the order in which they were asked for. */
  const inTurn = change => {
    const turn = last.then(() => workspace.setEgress(change));
    last = turn.catch(() => {});
    return turn;
  };
  return {
    setNetworkPolicy: async policy => inTurn(policyOf(policy)),
    setRequestTransformations: async rules => inTurn({ transformations: rules.map(ruleOf) }),
    addRequestTransformations: async rules => inTurn({ addTransformations: rules.map(ruleOf) }),
  };
}

function policyOf(policy) {
  if (policy.allowedCIDRs?.length > 0 || policy.deniedCIDRs?.length > 0)
    throw capabilityError('ranges of addresses cannot be allowed or denied, only names of hosts');
  switch (policy.mode) {
    case 'allow-all':
    case 'deny-all':
      return { mode: policy.mode };
    case 'custom':
      break;
    default:
      throw new TypeError(`there is no network policy of mode '${policy.mode}'`);
  }
  const hosts = policy.allowedHosts ?? [];
  /* What is allowed over TLS may be asked for in clear too, as mirrors of packages are. */
  return hosts.includes('*') ? { mode: 'allow-all' } : { mode: 'custom', allow: hosts, http: hosts };
}

function ruleOf({ match, transform }) {
  const { host, path, method, queryString, headers } = match;
  return {
    match: {
      host,
      ...(method && { method }),
      ...(path && { path: pathOf(path) }),
      ...(queryString && { query: queryString.map(pair => pairOf(pair, 'a parameter')) }),
      ...(headers && { headers: headers.map(pair => pairOf(pair, 'a header')) }),
    },
    set: transform.headers,
  };
}

function pathOf(path) {
  const { exact, startsWith, regex } = path;
  if (exact !== undefined)
    return { exact };
  return startsWith !== undefined ? { starts_with: startsWith } : { regex };
}

function pairOf({ key, value }, what) {
  if (key?.exact === undefined)
    throw capabilityError(`a request is matched by ${what} of one exact name only`);
  return {
    name: key.exact,
    ...(value?.exact !== undefined && { value_exact: value.exact }),
    ...(value?.startsWith !== undefined && { value_starts_with: value.startsWith }),
    ...(value?.regex !== undefined && { value_regex: value.regex }),
  };
}

module.exports = { createNetwork };
