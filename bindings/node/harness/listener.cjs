'use strict';
/*
 * A server on 127.0.0.1 that leads to one port inside a workspace, for HTTP and WebSockets.
 *
 * Other users of this machine can reach it too, so every request must carry its token: as a header,
 * or in the URL for clients that cannot send headers. Neither is passed on to the workspace.
 */

const { createHash, randomBytes, timingSafeEqual } = require('node:crypto');
const http = require('node:http');
const { Duplex } = require('node:stream');

const TOKEN_HEADER = 'x-libsandbox-token';
const TOKEN_PARAMETER = 'libsandbox_token';
const CONNECTIONS_MAX = 256;
const HEADERS_TIMEOUT_MS = 30_000;
/* Of one connection each, so neither side's may be told to the other. */
const PER_CONNECTION = new Set(['connection', 'keep-alive', 'proxy-connection']);

/**
 * Listens on a free port. Resolves to `{endpoint(protocol), close()}`.
 *
 * A listener does not keep the program alive, and never ends a connection because it is idle.
 */
async function openListener(workspace, port) {
  const token = randomBytes(32).toString('base64url');
  const sockets = new Set();
  const server = http.createServer({ requestTimeout: 0, headersTimeout: HEADERS_TIMEOUT_MS });
  server.maxConnections = CONNECTIONS_MAX;
  server.on('connection', socket => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => sockets.delete(socket));
  });
  server.on('request', (request, response) =>
    void passRequest({ workspace, port, token, request, response })
      .catch(error => answer(response, 502, error.message)));
  server.on('upgrade', (request, socket, head) =>
    void passUpgrade({ workspace, port, token, request, socket, head })
      .catch(() => socket.destroy()));
  await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host: '127.0.0.1', port: 0 }, resolve);
  });
  server.unref();

  const address = `127.0.0.1:${server.address().port}/?${TOKEN_PARAMETER}=${token}`;
  return {
    endpoint: protocol => ({
      url: `${protocol === 'ws' ? 'ws' : 'http'}://${address}`,
      headers: { [TOKEN_HEADER]: token },
    }),
    close() {
      server.close();
      for (const socket of sockets)
        socket.destroy();
    },
  };
}

async function passRequest({ workspace, port, token, request, response }) {
  if (!isAllowed(request, token))
    return answer(response, 401, 'this address needs its token');
  let tunnel;
  try {
    tunnel = await dial(workspace, port);
  } catch (error) {
    return answer(response, statusOf(error), error.message);
  }
  response.on('close', () => tunnel.destroy());
  const inner = http.request({
    createConnection: () => tunnel,
    method: request.method,
    path: withoutToken(request.url),
    headers: passedHeaders(request),
    setHost: false,
  });
  inner.on('response', answered => passResponse(answered, response));
  inner.on('error', error => answer(response, 502, error.message));
  request.pipe(inner);
}

/* What a program in the workspace says may be anything, also what may not be said again. */
function passResponse(answered, response) {
  answered.on('error', () => response.destroy());
  try {
    response.writeHead(answered.statusCode, answered.statusMessage, passedHeaders(answered));
  } catch (error) {
    answered.destroy();
    answer(response, 502, error.message);
    return;
  }
  response.flushHeaders(); // an event stream may have nothing to say for minutes
  answered.pipe(response);
}

async function passUpgrade({ workspace, port, token, request, socket, head }) {
  if (!isAllowed(request, token))
    return refuse(socket, 401, 'this address needs its token');
  let tunnel;
  try {
    tunnel = await dial(workspace, port);
  } catch (error) {
    return refuse(socket, statusOf(error), error.message);
  }
  const lines = [`${request.method} ${withoutToken(request.url)} HTTP/1.1`];
  const headers = withoutTokenHeader(request.rawHeaders);
  for (let index = 0; index < headers.length; index += 2)
    lines.push(`${headers[index]}: ${headers[index + 1]}`);
  tunnel.write(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
  tunnel.write(head);
  socket.setNoDelay(true);
  socket.on('close', () => tunnel.destroy());
  tunnel.on('close', () => socket.destroySoon());
  tunnel.on('error', () => socket.destroy());
  socket.pipe(tunnel).pipe(socket);
}

/* A stream over one connection into the workspace. */
async function dial(workspace, port) {
  const connection = await workspace.dial(port);
  const stream = Duplex.fromWeb({ readable: connection.readable, writable: connection.writable });
  stream.on('close', () => void Promise.resolve(connection.close()).catch(() => {}));
  return stream;
}

function isAllowed(request, token) {
  const given = [request.headers[TOKEN_HEADER], ...queryOf(request.url)
    .filter(isTokenParameter).map(part => part.slice(TOKEN_PARAMETER.length + 1))];
  return given.some(one => one !== undefined && isSame(one, token));
}

/* In a time that does not tell how much of it was right. */
function isSame(given, token) {
  const digest = text => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(token));
}

/* The others' own words stay as they are: not decoded, in their order. */
function withoutToken(url) {
  const kept = queryOf(url).filter(part => !isTokenParameter(part));
  const path = url.split('?', 1)[0];
  return kept.length === 0 ? path : `${path}?${kept.join('&')}`;
}

function queryOf(url) {
  const begin = url.indexOf('?');
  return begin < 0 ? [] : url.slice(begin + 1).split('&');
}

function isTokenParameter(part) {
  return part.startsWith(`${TOKEN_PARAMETER}=`);
}

function passedHeaders(message) {
  const passed = [];
  const headers = withoutTokenHeader(message.rawHeaders);
  for (let index = 0; index < headers.length; index += 2) {
    if (!PER_CONNECTION.has(headers[index].toLowerCase()))
      passed.push(headers[index], headers[index + 1]);
  }
  return passed;
}

function withoutTokenHeader(headers) {
  const isToken = index => headers[index - index % 2].toLowerCase() === TOKEN_HEADER;
  return headers.filter((_, index) => !isToken(index));
}

/* Nothing listens: a bad gateway. The workspace does not answer: not available now. */
function statusOf(error) {
  return error.reason === 'connection-refused' ? 502 : 503;
}

function answer(response, status, sentence) {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  // With its own words: those of an answer that could not be passed on may still be set.
  response.writeHead(status, http.STATUS_CODES[status],
    { 'content-type': 'text/plain; charset=utf-8', 'connection': 'close' });
  response.end(`${sentence}\n`);
}

function refuse(socket, status, sentence) {
  const body = Buffer.from(`${sentence}\n`);
  socket.end(`HTTP/1.1 ${status} ${http.STATUS_CODES[status]}\r\n` +
    'content-type: text/plain; charset=utf-8\r\nconnection: close\r\n' +
    `content-length: ${body.length}\r\n\r\n${body}`);
}

module.exports = { openListener };
